"""Commands joined by pipes, without a shell: `a | b`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from pipewright import _aio, _options
from pipewright._pipewright import start_pipeline
from pipewright._run import Call
from pipewright._stream import Events, Lines, call_of, lines_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pipewright._options import Args, Options
    from pipewright._result import CompletedProcess

#: The options of a whole pipeline.
_WHOLE = ("timeout", "idle_timeout", "kill_grace", "stop_signal", "limit", "linger")


#: In the place of a command line, until the stages are there.
_NAME = ["pipeline"]


class Command:
    """A command that can be joined to others by `|`. Takes the arguments of `run` that belong to one command.

    >>> from pipewright import Command
    >>> (Command(["printf", "b\\na\\n"]) | Command(["sort"])).run(capture_output=True, text=True).stdout
    'a\\nb\\n'
    """

    def __init__(self, args: Args, **options: Unpack[Options]) -> None:
        self.args = args
        self.options: Dict[str, Any] = dict(options)

    def __or__(self, other: Union[Command, Pipeline]) -> Pipeline:
        return Pipeline([self]) | other

    def __repr__(self) -> str:
        return f"Command({self.args!r})"


class Pipeline:
    """Commands joined by pipes. It fails if any of its commands fails, except by SIGPIPE (`pipefail`)."""

    def __init__(self, stages: List[Command]) -> None:
        self.stages = stages

    def __or__(self, other: Union[Command, Pipeline]) -> Pipeline:
        more = other.stages if isinstance(other, Pipeline) else [other]
        return Pipeline([*self.stages, *more])

    def __repr__(self) -> str:
        return " | ".join(repr(stage) for stage in self.stages)

    def run(
        self,
        *,
        input: Any = None,
        capture_output: bool = False,
        timeout: Optional[float] = None,
        check: bool = False,
        pipefail: bool = True,
        **options: Any,
    ) -> CompletedProcess[Any]:
        """Runs all commands to their ends. `stages` of the result has the end of each."""
        call = Call(self._options(options), input, capture_output, timeout, check)
        stages, settings = self._native(call, pipefail)
        return call.run_started(lambda started: start_pipeline(stages, settings, "output", started))

    async def run_async(
        self,
        *,
        input: Any = None,
        capture_output: bool = False,
        timeout: Optional[float] = None,
        check: bool = False,
        pipefail: bool = True,
        **options: Any,
    ) -> CompletedProcess[Any]:
        """Runs all commands to their ends, in an event loop."""
        call = Call(self._options(options), input, capture_output, timeout, check)
        return await _aio.finish(start_pipeline(*self._native(call, pipefail), "output"), call)

    def lines(
        self,
        *,
        input: Any = None,
        timeout: Optional[float] = None,
        check: bool = False,
        pipefail: bool = True,
        **options: Any,
    ) -> Lines:
        """Starts all commands and returns the lines of the last one, and of the stderr of all."""
        call = call_of(_NAME, input, timeout, check, None, self._options(options))
        return Lines(lines_of(call, partial(start_pipeline, *self._native(call, pipefail))), call)

    def events(
        self,
        *,
        input: Any = None,
        timeout: Optional[float] = None,
        check: bool = False,
        pipefail: bool = True,
        **options: Any,
    ) -> Events:
        """Starts all commands and returns the events of the whole."""
        call = call_of(_NAME, input, timeout, check, None, self._options(options))
        return Events(start_pipeline(*self._native(call, pipefail), "events"), call)

    def _options(self, options: Dict[str, Any]) -> Dict[str, Any]:
        options["args"] = _NAME
        return options

    def _native(self, call: Call, pipefail: bool) -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
        """Returns the native options of each stage, and of the whole."""
        call.args = [stage.args for stage in self.stages]
        whole = call.native
        stages = []
        for stage in self.stages:
            options = dict(stage.options, args=stage.args)
            options.setdefault("tree", whole.get("tree", False))
            native = _options.native(options)
            # The pipeline has the streams between two stages.
            for name in ("stdin", "stdout", "stderr"):
                if name not in stage.options:
                    native[name] = -6
            stages.append(native)
        first, last = stages[0], stages[-1]
        if first["stdin"] == -6:
            first["stdin"] = whole["stdin"]
            if "input" in whole:
                first["input"] = whole["input"]
        if last["stdout"] == -6:
            last["stdout"] = whole["stdout"]
        if not call.captures[1]:
            for native in stages:
                if native["stderr"] == -6:
                    native["stderr"] = whole["stderr"]
        settings = {name: whole[name] for name in _WHOLE if name in whole}
        settings["pipefail"] = pipefail
        return stages, settings


def pipeline(*commands: Union[Command, Pipeline], **options: Any) -> CompletedProcess[Any]:
    """Runs a pipeline, given as `a | b` or as several commands, with the arguments of `Pipeline.run`.

    >>> from pipewright import Command, pipeline
    >>> done = pipeline(Command(["sh", "-c", "exit 3"]) | Command(["cat"]), capture_output=True)
    >>> done.returncode, [stage["returncode"] for stage in done.stages]
    (3, [3, 0])
    """
    joined = Pipeline([])
    for command in commands:
        joined = joined | command
    return joined.run(**options)
