//! The programs that the cases need: builds the C programs and the peers, and finds their paths.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// The programs that the cases run.
///
/// # Drop
///
/// Removes the compiled C programs.
pub(crate) struct Tools {
    /// The directory of this workspace.
    pub(crate) workspace: PathBuf,
    /// The directory of cargo's release builds.
    pub(crate) binaries: PathBuf,
    /// The directory of the children and the C peer. It is outside of any home directory, so that any user can run
    /// them.
    pub(crate) programs: PathBuf,
}

const STATIC: &[&str] = &["-static"];
const WITHOUT_LIBC: &[&str] = &["-static", "-nostdlib"];

impl Tools {
    pub(crate) fn prepare() -> Result<Tools> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .ok_or("this package has no workspace")?
            .to_owned();
        build_peers(&workspace)?;
        let own = std::env::current_exe()?;
        let binaries = own.parent().ok_or("this program has no directory")?.to_owned();
        let programs =
            std::env::temp_dir().join(format!("pipewright-bench-{}", std::process::id()));
        // Fails if the directory exists, so that no other user's files are run.
        fs::create_dir(&programs)?;
        let tools = Tools { workspace, binaries, programs };
        fs::set_permissions(&tools.programs, fs::Permissions::from_mode(0o755))?;
        tools.compile("exit0", STATIC)?;
        tools.compile("exit0-nolibc", WITHOUT_LIBC)?;
        tools.compile("lines", STATIC)?;
        tools.compile("text", STATIC)?;
        tools.compile("peer", STATIC)?;
        Ok(tools)
    }

    /// Returns the path of a compiled C program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    fn compile(&self, name: &str, options: &[&str]) -> Result<()> {
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-Wall", "-Wextra"]).args(options).arg("-o").arg(self.program(name));
        compiler.arg(self.workspace.join("c").join(format!("{name}.c")));
        let output = compiler.output().map_err(|error| format!("cc: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("cc failed on {name}.c: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        // Ignored: files left in the directory for temporary files do no harm.
        let _ = fs::remove_dir_all(&self.programs);
    }
}

/// Builds the peers, because `cargo run` only builds this program.
///
/// The two programs of the case `size` are built separately: together with the peers, they would get the features that
/// the peers ask for (tokio).
fn build_peers(workspace: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for packages in [&["-p", "peers"][..], &["-p", "size-std", "-p", "size-pipewright"]] {
        let mut build = Command::new(&cargo);
        build.args(["build", "--release", "--quiet"]).args(packages).current_dir(workspace);
        if !build.status()?.success() {
            return Err("cargo failed to build the peers".into());
        }
    }
    Ok(())
}

/// Returns the absolute path of a program in `PATH`, so that all peers get the same path.
pub(crate) fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| format!("{program} is not in PATH").into())
}

/// Returns the first line that a program prints, or "PROGRAM: unknown" if it fails.
pub(crate) fn first_line(program: &str, arguments: &[&str], dir: &Path) -> String {
    let output = Command::new(OsStr::new(program)).args(arguments).current_dir(dir).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
        }
        _ => format!("{program}: unknown"),
    }
}
