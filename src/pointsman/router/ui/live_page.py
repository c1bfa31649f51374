"""``/ui``, a page for people, and ``/ui/state``, what it shows, asked for once a second."""

from __future__ import annotations

from importlib.metadata import version

import msgspec

from pointsman.router.admission import Admission
from pointsman.router.answers import Answer
from pointsman.router.engines import Engines
from pointsman.router.messages import ClientRequest
from pointsman.router.ui.access import UiSettings, refusal_of_page, refusal_of_state
from pointsman.router.ui.document import NEVER_GUESSED, NEVER_KEPT, page
from pointsman.router.ui.state import Sources, state_of
from pointsman.router.ui.watch import Watch

UI = "/ui"
UI_STATE = "/ui/state"
UI_PATHS = frozenset((UI, UI_STATE))


class LivePage:
    """Answers who may look; ``watch`` is on while somebody does."""

    def __init__(self, admission: Admission, engines: Engines, settings: UiSettings) -> None:
        self._settings = settings
        self._sources = Sources(admission, engines, version("pointsman"))
        self._dispatcher = admission.dispatcher
        self._page = page()
        self._encoder = msgspec.json.Encoder()
        self.watch = Watch(admission.dispatcher)
        self._dispatcher.ledger.expected_wait(0, 1, 0.0, 0.0)  # compiled now: nobody waits for it

    def answer(self, request: ClientRequest) -> Answer:
        """The answer to a request of ``UI_PATHS``."""
        if request.path == UI:
            return refusal_of_page(request, self._settings) or self._page
        return refusal_of_state(request, self._settings) or self._state()

    def close(self) -> None:
        """Nobody looks any more."""
        self.watch.end()

    def _state(self) -> Answer:
        now_ms = self._dispatcher.clock_ms()
        state = state_of(self._sources, self.watch.look(now_ms), now_ms)
        return Answer(200, self._encoder.encode(state), (NEVER_KEPT, NEVER_GUESSED))
