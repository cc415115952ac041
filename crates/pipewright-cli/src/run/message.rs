//! Messages about the end of a command or a pipeline.

use pipewright::{Captured, Containment, Exceeded, Outcome};
use pipewright_os::base::error::Quoted;

use crate::args::{CommonOptions, Span};

/// The limits that a message names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times<'a> {
    pub(crate) common: &'a CommonOptions,
    /// The limit for all attempts.
    pub(crate) total: Option<&'a Span>,
}

impl Times<'_> {
    /// Returns true if the limit for all attempts stopped the command, and not that for one attempt.
    fn is_total(&self, exceeded: Option<Exceeded>) -> bool {
        self.common.timeout().map(Exceeded::Time) != exceeded
    }
}

/// Returns the message about a stop, or about output that is still held; `None` if the command just ended.
pub(crate) fn about_end<T>(
    name: &str,
    captured: &Captured<T>,
    times: &Times<'_>,
) -> Option<String> {
    let options = times.common;
    let shown = |span: &Option<Span>| span.as_ref().map(ToString::to_string).unwrap_or_default();
    Some(match captured.outcome {
        Outcome::TimedOut => match times.total.filter(|_| times.is_total(captured.exceeded)) {
            Some(total) => format!("{name} timed out: all attempts took {total}"),
            None => format!("{name} timed out after {}", shown(&options.timeout)),
        },
        Outcome::IdleTimedOut => {
            format!("{name} timed out: no output for {}", shown(&options.idle_timeout))
        }
        Outcome::LimitExceeded => {
            format!("{name} exceeded --limit ({} bytes)", options.limit.unwrap_or_default())
        }
        Outcome::OutOfMemory(oom) => match oom.victim {
            Some(_) => oom.to_string(),
            // The name of the command says whose process it was.
            None => format!("{name} ran out of memory: {oom}"),
        },
        Outcome::Cancelled => format!("{name} was interrupted"),
        _ if captured.held_open && lives_on(captured.containment) => {
            format!("{name} exited; a background process still holds its output (see --linger)")
        }
        _ if captured.leftovers_killed > 0 => {
            let (processes, them) = match captured.leftovers_killed {
                1 => ("1 background process was".to_owned(), "it"),
                many => (format!("{many} background processes were"), "them"),
            };
            format!("{name} exited; {processes} killed (--contain none keeps {them})")
        }
        _ => return None,
    })
}

/// Returns true if a process that outlives the command keeps running, and so loses its later output. Otherwise it has been
/// killed, and the report counts it: nothing more would have come.
fn lives_on(containment: Containment) -> bool {
    matches!(containment, Containment::None | Containment::Group)
}

/// Quotes names of programs, on one line.
pub(crate) fn quoted(names: &str) -> String {
    Quoted(names.as_ref()).to_string()
}
