"""What ``pointsman`` says when it is asked for nothing: where to begin.

The exit code is 0, as kubectl's and gh's: whoever typed the name alone has made no mistake.
"""

WELCOME = """\
Pointsman decides where LLM inference requests run over model replicas, and proves why.

Where to begin, by what you want to do:

  a workload to try things on, generated from one seed
    pointsman trace generate --requests 1000 --rate-rps 4 --output requests.jsonl \\
        --prompt-tokens lognormal:mean=800,sigma=1 --output-tokens geometric:mean=100 \\
        --turns geometric:mean=3 --think-time-ms exponential:mean=20000

  see which routing policy suits it
    pointsman compare requests.jsonl --replicas 2

  choose a shape for your GPUs
    pointsman plan requests.jsonl --model llama-3.1-8b --device h100 --gpus 2 \\
        --goodput ttft:2000 tpot:60 --kind replicas

  route real requests to replicas that you have running
    pointsman serve --replica http://127.0.0.1:8001 --replica http://127.0.0.1:8002

pointsman doctor says what is installed here; pointsman init writes starter files;
pointsman completion bash completes commands; pointsman --help lists all of them.
"""
