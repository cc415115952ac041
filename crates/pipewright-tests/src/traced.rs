//! A subscriber of `tracing` that keeps every event as a line, with its span.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the events of one crate, as lines such as
/// `DEBUG message=ended status=exit status: 0 [process pid=7 program="true" ]`.
#[derive(Clone)]
pub struct TraceLines {
    target: &'static str,
    kept: Arc<Mutex<KeptEvents>>,
}

#[derive(Debug, Default)]
struct KeptEvents {
    lines: Vec<String>,
    /// The name and the fields of each span; a span's id is its index here, counted from 1.
    spans: Vec<String>,
}

struct FieldText(String);

impl Visit for FieldText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl TraceLines {
    /// Keeps all later events of this process whose target starts with that text. Call it once in a process.
    #[must_use]
    pub fn listen(target: &'static str) -> TraceLines {
        let lines = TraceLines { target, kept: Arc::default() };
        tracing::subscriber::set_global_default(lines.clone())
            .expect("there is no other subscriber");
        lines
    }

    /// Returns true if a line contains all of these words.
    #[must_use]
    pub fn find(&self, words: &[&str]) -> bool {
        self.count(words) > 0
    }

    /// Returns the number of lines that contain all of these words.
    #[must_use]
    pub fn count(&self, words: &[&str]) -> usize {
        let has_all = |line: &&String| words.iter().all(|words| line.contains(words));
        self.lines().iter().filter(has_all).count()
    }

    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.with(|kept| kept.lines.clone())
    }

    fn with<T>(&self, what: impl FnOnce(&mut KeptEvents) -> T) -> T {
        what(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for TraceLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let rest = metadata.target().strip_prefix(self.target);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = FieldText(span.metadata().name().to_owned());
        span.record(&mut fields);
        let number = self.with(|kept| {
            kept.spans.push(fields.0);
            kept.spans.len()
        });
        Id::from_u64(number as u64)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = FieldText(event.metadata().level().to_string());
        event.record(&mut line);
        line.0.push(' ');
        self.with(|kept| {
            let span = event.parent().and_then(|id| kept.spans.get(id.into_u64() as usize - 1));
            let span = span.map(|span| format!("[{span} ]")).unwrap_or_default();
            kept.lines.push(line.0 + &span);
        });
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
