//! cargo below our server: its build scripts are the jobs that are counted.

use super::*;

/// The number of packages, each with a build script.
const PACKAGES: u32 = 5;

#[test]
fn cargo_below_us_shares_the_slots() {
    if version_of("cargo").is_none() {
        return;
    }
    const SLOTS: u32 = 2;
    for style in [Style::Fifo, Style::Pipe] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "").unwrap();
        workspace(folder.path(), &log, SLOTS);
        let server = Server::new(slots(SLOTS), style).unwrap();
        let token = server.try_acquire().unwrap();
        let mut cargo = Command::new("cargo");
        // Without the tokens it would run as many as this.
        cargo.args(["build", "--offline", "--quiet", "--jobs", "8", "--target-dir"]);
        cargo.arg(folder.path().join("target")).current_dir(folder.path());
        // The gate's flags are not for these packages.
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        let captured = below(&server, cargo).capture().unwrap().check().unwrap();
        assert_eq!(captured.stderr, "", "{style:?}");
        assert_eq!(read_log(&log), (PACKAGES, SLOTS), "{style:?}");
        drop(token);
        assert_eq!(server.refill().unwrap(), Default::default(), "{style:?}");
    }
}

fn workspace(folder: &Path, log: &Path, barrier: u32) {
    file(folder, "Cargo.toml", "[workspace]\nresolver = \"2\"\nmembers = [\"p*\"]\n");
    let job = logged_job(log, barrier);
    let script = format!(
        "fn main() {{\n\
         let status = std::process::Command::new(\"sh\").arg(\"-c\").arg({job:?}).status();\n\
         assert!(status.unwrap().success());\n}}\n"
    );
    for number in 0..PACKAGES {
        let package =
            format!("[package]\nname = \"p{number}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        file(folder, &format!("p{number}/Cargo.toml"), &package);
        file(folder, &format!("p{number}/build.rs"), &script);
        file(folder, &format!("p{number}/src/lib.rs"), "");
    }
}
