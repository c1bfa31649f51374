"""Completion scripts: one table of words, written in the language of each shell.

path    the commands that stand before the word, such as /trace/info
before  the flag that the word belongs to, if any
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from pointsman.cli.completion_words import Command, Values

_PATH_WORDS = "@files"
_TOML_WORD = "@toml"  # beside words: files of that ending too


def script_for(shell: str, tree: Command) -> str:
    """The script of a shell: bash, zsh or fish."""
    writers: dict[str, Callable[[Command], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return writers[shell](tree)


_BASH = """\
# Completes pointsman in bash. Load it with:  source <(pointsman completion bash)
_pointsman() {{
    local i=$COMP_CWORD j last=${{COMP_WORDS[COMP_CWORD]}}
    local word=$last before typed value flag="" at="" found="" ended="" each words=""
    # Bash cuts --flag=value and name:parameter=value into several words.
    while ((i > 1)) && [[ $word == [:=]* || ${{COMP_WORDS[i-1]}} == [:=] ]]; do
        i=$((i - 1))
        word=${{COMP_WORDS[i]}}$word
    done
    typed=${{word%"$last"}} before=${{COMP_WORDS[i-1]}} value=$word
    if [[ $last == [:=]* ]]; then
        typed=$word
    fi
    if [[ $word == --*=* ]]; then
        before=${{word%%=*}} value=${{word#*=}} flag=${{word%%=*}}=
    fi
    for ((j = 1; j < i; j++)); do
        # Behind -- no word is a flag.
        [[ ${{COMP_WORDS[j]}} == "--" ]] && before="" ended=yes
        case "$at/${{COMP_WORDS[j]}}" in
            {paths}) at="$at/${{COMP_WORDS[j]}}" ;;
        esac
    done
    COMPREPLY=()
    case "$at $before" in
{values}
    esac
    if [[ -z $found$ended && $word == -* ]]; then
        case "$at" in
{flags}
        esac
    elif [[ -z $found ]]; then
        case "$at" in
{arguments}
        esac
    fi
    if [[ $found == {files} ]]; then
        compopt -o filenames 2>/dev/null
        local IFS=$'\\n'
        COMPREPLY=($(compgen -f -- "$value"))
    elif [[ -n $found ]]; then
        for each in $found; do
            # What may follow a colon is offered once that is there.
            [[ $each == *:* && $value != *:* || $each == {toml} ]] || words+=" $each"
        done
        COMPREPLY=($(compgen -W "$words" -- "$value"))
        if [[ ${{COMPREPLY[0]-}} == *= ]]; then
            compopt -o nospace 2>/dev/null
        elif [[ " $found " == *" {toml} "* && -n $value && -z ${{COMPREPLY[0]-}} ]]; then
            compopt -o filenames 2>/dev/null
            local IFS=$'\\n'
            COMPREPLY=($(compgen -f -X '!*.toml' -- "$value") $(compgen -d -- "$value"))
        fi
    fi
    # Of what is offered Bash wants what is behind its last cut.
    COMPREPLY=("${{COMPREPLY[@]/#/$flag}}")
    COMPREPLY=("${{COMPREPLY[@]#"$typed"}}")
}}
complete -F _pointsman pointsman
"""

_ZSH = """\
#compdef pointsman
# Completes pointsman in zsh. Load it after compinit with:  source <(pointsman completion zsh)
_pointsman() {{
    local word=${{words[CURRENT]}} before=${{words[CURRENT-1]}} at="" found="" ended="" i each
    local value=$word
    local -a whole begun
    if [[ $word == --*=* ]]; then
        before=${{word%%=*}}
        value=${{word#*=}}
        compset -P 1 '*='
    fi
    for ((i = 2; i < CURRENT; i++)); do
        # Behind -- no word is a flag.
        [[ ${{words[i]}} == "--" ]] && before="" ended=yes
        case "$at/${{words[i]}}" in
            {paths}) at="$at/${{words[i]}}" ;;
        esac
    done
    case "$at $before" in
{values}
    esac
    if [[ -z $found$ended && $word == -* ]]; then
        case "$at" in
{flags}
        esac
    elif [[ -z $found ]]; then
        case "$at" in
{arguments}
        esac
    fi
    if [[ $found == {files} ]]; then
        _files
    elif [[ -n $found ]]; then
        for each in ${{=found}}; do
            # What may follow a colon is offered once that is there.
            if [[ $each == {toml} ]]; then
                _files -g '*.toml'
            elif [[ $each != *:* || $value == *:* ]]; then
                if [[ $each == *= ]]; then
                    begun+=($each)
                else
                    whole+=($each)
                fi
            fi
        done
        if (( $#begun )); then
            compadd -S '' -- $begun
        fi
        if (( $#whole )); then
            compadd -- $whole
        fi
    fi
}}
if [[ ${{funcstack[1]}} == _pointsman ]]; then
    _pointsman "$@"
else
    compdef _pointsman pointsman
fi
"""


def _bash(tree: Command) -> str:
    return _BASH.format(**_cases(tree))


def _zsh(tree: Command) -> str:
    return _ZSH.format(**_cases(tree))


def _cases(tree: Command) -> dict[str, str]:
    """The arms of the three questions: a flag's values, a command's flags, what else it takes."""
    commands = list(tree.all())
    paths = "|".join(command.path for command in commands if command.path)
    flags = [
        (f'"{command.path}"', " ".join(name for flag in command.flags for name in flag.names))
        for command in commands
    ]
    arguments = [(f'"{command.path}"', _taken(command)) for command in commands]
    values = [arm for command in commands for arm in _value_arms(command)]
    return {
        "paths": paths,
        "values": _arms(values, 8),
        "flags": _arms(flags, 12),
        "arguments": _arms(arguments, 12),
        "files": _PATH_WORDS,
        "toml": _TOML_WORD,
    }


def _taken(command: Command) -> str:
    """Its subcommands, or what its arguments are."""
    return " ".join(each.words[-1] for each in command.below) or _words(command.arguments)


def _words(values: Values) -> str:
    if not values.words:
        return _PATH_WORDS if values.is_path else ""
    return " ".join((*values.words, *([_TOML_WORD] if values.or_toml else [])))


def _value_arms(command: Command) -> Iterator[tuple[str, str]]:
    """Where nothing is known of a value nothing is offered, not even flags: a blank is no word."""
    for flag in command.flags:
        if flag.values is not None:
            patterns = "|".join(f'"{command.path} {name}"' for name in flag.names)
            yield patterns, _words(flag.values) or " "


def _arms(arms: list[tuple[str, str]], indent: int) -> str:
    return "\n".join(
        f"{' ' * indent}{patterns}) found={shlex.quote(words) if words else chr(34) * 2} ;;"
        for patterns, words in arms
    )


_FISH = """\
# Completes pointsman in fish. Load it with:  pointsman completion fish | source
function __pointsman_at --argument-names wanted
    set -l at ""
    for word in (commandline -opc)[2..-1]
        switch "$at/$word"
            case {paths}
                set at "$at/$word"
        end
    end
    test "$at" = "$wanted"
end
function __pointsman_toml
    set -l begun (string replace -r -- '^--[^=]*=' '' (commandline -ct))
    for file in $begun*.toml $begun*/
        echo $file
    end
end
complete -c pointsman -f
"""


def _fish(tree: Command) -> str:
    commands = list(tree.all())
    paths = " ".join(command.path for command in commands if command.path)
    lines = [line for command in commands for line in _fish_lines(command)]
    return _FISH.format(paths=paths) + "".join(f"{line}\n" for line in lines)


def _fish_lines(command: Command) -> Iterator[str]:
    start = f"complete -c pointsman -n '{_fish_at(command)}'"
    for each in command.below:
        yield f"{start} -a {each.words[-1]} -d {_fish_quoted(each.help)}"
    if command.arguments.words:
        yield f"{start} -a {_fish_quoted(' '.join(command.arguments.words))}"
    elif command.arguments.is_path:
        yield f"{start} -F"
    for flag in command.flags:
        names = " ".join(
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names
        )
        taken = "" if flag.values is None else _fish_values(flag.values)
        yield f"{start} {names}{taken} -d {_fish_quoted(flag.help)}"
        behind = [] if flag.values is None else [word for word in flag.values.words if ":" in word]
        if behind:  # what may follow a colon is offered once that is there
            at = f'{_fish_at(command)}; and string match -q "*:*" -- (commandline -ct)'
            yield f"complete -c pointsman -n '{at}' {names} -x -a {_fish_quoted(' '.join(behind))}"


def _fish_at(command: Command) -> str:
    return f'__pointsman_at "{command.path}"'


def _fish_values(values: Values) -> str:
    if values.words:
        words = " ".join(word for word in values.words if ":" not in word)
        files = " (__pointsman_toml)" if values.or_toml else ""
        return f" -x -a {_fish_quoted(words + files)}"
    return " -r -F" if values.is_path else " -x"


def _fish_quoted(text: str) -> str:
    """In single quotes fish takes a backslash before a quote or another one."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
