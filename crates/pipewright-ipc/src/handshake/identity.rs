//! The identity of a side.

use pipewright_os::channel::handle_channel;

use crate::error::{Error, ErrorKind, Side};
use crate::options::Options;
use crate::wire::{HelloFields, VERSION};

/// The fields that have to be equal on both sides, in the order in which they are compared.
#[derive(Debug)]
pub(super) struct Identity([(&'static str, String); 7]);

/// The last field, which is missing if it is empty: earlier versions of this library do not have it.
const SERVICE: &str = "service";

impl Identity {
    pub(super) fn of(options: &Options) -> Identity {
        let bits = usize::BITS;
        let order = if cfg!(target_endian = "little") { "little" } else { "big" };
        Identity([
            // First: the version defines the meaning of the others.
            ("version", VERSION.to_string()),
            ("app", options.app.clone()),
            ("build", options.build.clone()),
            ("arch", format!("{}-{bits}-{order}", std::env::consts::ARCH)),
            ("user", handle_channel::user()),
            ("salt", options.salt.clone()),
            (SERVICE, options.service.clone()),
        ])
    }

    pub(super) fn write_to(&self, fields: &mut HelloFields) {
        for (key, value) in &self.0 {
            if *key != SERVICE || !value.is_empty() {
                fields.set(key, value);
            }
        }
    }

    /// Returns an error that names the first field that differs. `own_side` is the side that compares.
    pub(super) fn mismatch(&self, theirs: &HelloFields, own_side: Side) -> Option<Error> {
        // Values are sent without control characters, so they are compared without them.
        let mut ours = HelloFields::default();
        self.write_to(&mut ours);
        let differs = |key: &&str| ours.get(key) != theirs.get(key);
        let field = self.0.iter().map(|(key, _)| *key).find(differs)?;
        let [ours, theirs] =
            [&ours, theirs].map(|it| it.get(field).unwrap_or("nothing").to_owned());
        let (host, worker) = if own_side == Side::Host { (ours, theirs) } else { (theirs, ours) };
        Some(Error::new(ErrorKind::Refused { by: own_side, field: field.to_owned(), host, worker }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_that_differs_is_named_with_both_values() {
        let options = Options { app: "a\n".to_owned(), ..Options::default() };
        let ours = Identity::of(&options);
        let mut theirs = HelloFields::default();
        ours.write_to(&mut theirs);
        assert!(ours.mismatch(&theirs, Side::Host).is_none());
        let other = Identity::of(&Options { build: "2".to_owned(), ..options.clone() });
        let mut theirs = HelloFields::default();
        other.write_to(&mut theirs);
        let error = ours.mismatch(&theirs, Side::Host).unwrap();
        let text = r#"the host refused the connection: build differs (host "", worker "2")"#;
        assert_eq!(error.to_string(), text);
        let error = ours.mismatch(&HelloFields::default(), Side::Worker).unwrap();
        let text =
            r#"the worker refused the connection: version differs (host "nothing", worker "1")"#;
        assert_eq!(error.to_string(), text);
    }
}
