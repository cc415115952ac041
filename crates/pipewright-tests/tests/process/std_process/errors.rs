//! Errors: the kind is std's, and the system's number is inside.

use pipewright_test_macros::watched_test;

use std::io;

/// Commands that fail to start: their programs and setters.
macro_rules! failures {
    ($($process:ident)::*) => {{
        use $($process)::*::Command;
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            path
        };
        let spawned = |mut command: Command| command.spawn().err();
        let mut errors: Vec<(&str, Option<io::Error>)> = vec![
            ("not found in PATH", spawned(Command::new("no-such-program"))),
            ("no such file", spawned(Command::new("/no/such/program"))),
            ("empty name", spawned(Command::new(""))),
            ("a directory", spawned(Command::new("/"))),
            ("not executable", spawned(Command::new(file("plain", 0o644, "text")))),
            ("no format", spawned(Command::new(file("format", 0o755, "\u{1}\u{2}")))),
            ("no interpreter", spawned(Command::new(file("script", 0o755, "#!/no/such/sh\n")))),
            ("below a file", spawned(Command::new(file("file", 0o644, "").join("program")))),
        ];
        let mut missing = Command::new("true");
        missing.current_dir("/no/such/dir");
        errors.push(("no directory", spawned(missing)));
        let mut file_as_dir = Command::new("true");
        file_as_dir.current_dir("/dev/null");
        errors.push(("a file as directory", spawned(file_as_dir)));
        let mut nul = Command::new("true");
        nul.arg("a\0b");
        errors.push(("NUL in an argument", spawned(nul)));
        let mut nul = Command::new("true");
        nul.env("A\0", "b");
        errors.push(("NUL in a variable", spawned(nul)));
        let mut long = Command::new("true");
        long.arg("x".repeat(200 << 10));
        errors.push(("too long", spawned(long)));
        errors.push(("a name that no directory has", spawned(Command::new("x".repeat(5_000)))));
        errors
    }};
}

#[watched_test]
fn kinds_are_those_of_std_and_the_number_is_inside() {
    let (theirs, ours) = (failures!(std::process), failures!(pipewright::process));
    assert_eq!(theirs.len(), ours.len());
    for ((name, theirs), (_, ours)) in theirs.into_iter().zip(ours) {
        let (theirs, ours) = (theirs.expect(name), ours.expect(name));
        assert_eq!(ours.kind(), theirs.kind(), "{name}: {theirs} | {ours}");
        let inside = ours.get_ref().and_then(|inside| inside.downcast_ref::<pipewright::Error>());
        let inside = inside.unwrap_or_else(|| panic!("{name}: nothing in {ours:?}"));
        if !matches!(name, "empty name" | "NUL in an argument" | "NUL in a variable") {
            assert_eq!(inside.raw_os_error(), theirs.raw_os_error(), "{name}");
        }
    }
}

#[watched_test]
fn the_inner_error_has_more_facts_than_std() {
    let error = pipewright::process::Command::new("no-such-program").status().unwrap_err();
    assert!(error.to_string().contains("not found in PATH (searched"), "{error}");
    let inside = error.into_inner().unwrap().downcast::<pipewright::Error>().unwrap();
    assert!(matches!(inside.kind(), pipewright::ErrorKind::NotFound { .. }), "{inside}");
}
