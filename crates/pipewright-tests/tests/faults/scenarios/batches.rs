//! The tool: one command, batches with a log and files, their continuation and their list; and the Python package.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use super::{PYTHON, Scenario, TOOL};
use crate::scene::{Fault, Pass, Scene, Seen, expect};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("tool_run", |_| Ok(Box::new(run))).of(TOOL),
        Scenario::new("tool_pipe", |_| Ok(Box::new(pipe))).of(TOOL),
        Scenario::new("tool_timeout", |_| Ok(Box::new(timeout))).of(TOOL).without(LEADS_A_SESSION),
        Scenario::new("tool_batch", |_| Ok(Box::new(batch))).of(TOOL),
        Scenario::new("tool_batch_log", |_| logged(&[])).of(TOOL),
        Scenario::new("tool_batch_once", |_| logged(&["--once"])).of(TOOL),
        Scenario::new("tool_resume", resume).warm().of(TOOL),
        Scenario::new("tool_jobs", jobs).warm().of(TOOL),
        Scenario::new("python_run", |_| python("run")).of(PYTHON),
        Scenario::new("python_communicate", |_| python("communicate")).of(PYTHON),
    ]
}

/// Only the leader of a session is told so, and that leads its group, too: the signal for the group then reaches no
/// stranger.
const LEADS_A_SESSION: &[(&str, &[i32])] = &[("tool setpgid", &[libc::EPERM])];

/// Returns the tool, which is built beside this suite.
fn tool() -> Result<PathBuf, Fault> {
    let own = std::env::current_exe().map_err(Fault::told)?;
    let tool = own.ancestors().nth(2).map(|folder| folder.join("pipewright"));
    tool.filter(|tool| tool.exists()).ok_or_else(|| {
        Fault::Skip(
            "file:target/debug/pipewright the tool is not built beside this suite".to_owned(),
        )
    })
}

/// Runs a program and returns its status and stdout.
fn run_program(scene: &Scene, command: &mut Command) -> Result<(ExitStatus, String), Fault> {
    let path = scene.path("stdout");
    let output = fs::File::create(&path).map_err(Fault::told)?;
    let status = command.stdin(Stdio::null()).stdout(output).status().map_err(Fault::told)?;
    Ok((status, fs::read_to_string(path).unwrap_or_default()))
}

fn run(scene: &Scene) -> Seen {
    let tally = scene.folder.join("tally");
    let script = format!("echo {}.a >>{}; echo out; exit 7", scene.pass.get(), tally.display());
    let mut command = Command::new(tool()?);
    command.args(["run", "--timeout", "10", "--", "/bin/sh", "-c", &script]);
    let (status, stdout) = run_program(scene, &mut command)?;
    // 125 to 127 are the tool's own.
    if status.code() != Some(7) {
        return Err(Fault::Told(status.to_string()));
    }
    expect("stdout", stdout.as_str(), "out\n")?;
    scene.ran("a")?;
    Ok(String::new())
}

fn pipe(scene: &Scene) -> Seen {
    let tally = scene.folder.join("tally");
    let script =
        |name: &str| format!("echo {}.{name} >>{}; cat", scene.pass.get(), tally.display());
    let mut command = Command::new(tool()?);
    command
        .args(["pipe", "--timeout", "10", "--", "/bin/sh", "-c"])
        .arg(script("a") + "; echo out");
    command.args(["|", "/bin/sh", "-c", &script("b")]);
    let (status, stdout) = run_program(scene, &mut command)?;
    if !status.success() {
        return Err(Fault::Told(status.to_string()));
    }
    expect("stdout", stdout.as_str(), "out\n")?;
    scene.ran("a")?;
    scene.ran("b")?;
    Ok(String::new())
}

fn timeout(scene: &Scene) -> Seen {
    let script = format!("echo $$ >{}; exec sleep 100", scene.path("pid").display());
    let mut command = Command::new(tool()?);
    let (status, _) =
        run_program(scene, command.args(["timeout", "0.05", "/bin/sh", "-c", &script]))?;
    for line in String::from_utf8_lossy(&scene.bytes_of("pid")).lines() {
        if let Ok(pid) = line.parse() {
            super::trees::gone(pid)?;
        }
    }
    if status.code() != Some(124) {
        return Err(Fault::Told(status.to_string()));
    }
    Ok(String::new())
}

const JOBS: [&str; 3] = ["a", "b", "c"];

/// Returns the words of a batch whose jobs add their names to the file `ran` of the pass, and print them.
fn batch_words(scene: &Scene) -> Vec<String> {
    let script = format!("echo {{}} >>{}; echo out {{}}", scene.path("ran").display());
    let mut words =
        vec!["--".to_owned(), "/bin/sh".to_owned(), "-c".to_owned(), script, ":::".to_owned()];
    words.extend(JOBS.map(str::to_owned));
    words
}

/// Returns how often each job ran.
fn runs(ran: &Path) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for line in fs::read_to_string(ran).unwrap_or_default().lines() {
        *runs.entry(line.to_owned()).or_default() += 1;
    }
    runs
}

fn once_each() -> BTreeMap<String, usize> {
    JOBS.map(|job| (job.to_owned(), 1)).into()
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn batch(scene: &Scene) -> Seen {
    let mut command = Command::new(tool()?);
    command.args(["batch", "-j2", "--quiet"]).args(batch_words(scene));
    let (status, stdout) = run_program(scene, &mut command)?;
    if !status.success() {
        for (job, count) in runs(&scene.path("ran")) {
            expect(&format!("runs of {job}"), count, 1)?;
        }
        return Err(Fault::Told(status.to_string()));
    }
    expect("runs", runs(&scene.path("ran")), once_each())?;
    expect("stdout", sorted(&stdout), JOBS.map(|job| format!("out {job}")).into())?;
    Ok(String::new())
}

/// The first pass is a batch, the second its continuation, the third another batch.
fn logged(options: &'static [&'static str]) -> Result<Pass, Fault> {
    let mut before: Option<(PathBuf, PathBuf, PathBuf)> = None;
    Ok(Box::new(move |scene| {
        let tool = tool()?;
        let (log, files, ran) = match before.take() {
            Some(earlier) if scene.pass.get() == 2 => earlier,
            _ => (scene.path("log"), scene.path("files"), scene.path("ran")),
        };
        let is_again = log != scene.path("log");
        before = Some((log.clone(), files.clone(), ran.clone()));
        let mut command = Command::new(&tool);
        command.args(["batch", "-j2", "--quiet"]).args(options);
        command.arg("--log").arg(&log).arg("--output-dir").arg(&files);
        let done_before = in_state(scene, &tool, &log, "succeeded");
        let ran_before = runs(&ran);
        if is_again && log.exists() {
            command.args(["--resume", "--retry-failed"]);
        }
        let mut words = batch_words(scene);
        if is_again {
            let own = scene.path("ran").display().to_string();
            words[3] = words[3].replace(&own, &ran.display().to_string());
        }
        let (status, _) = run_program(scene, command.args(words))?;
        let ran = runs(&ran);
        // What was recorded as done did not run again, and its output is there.
        for job in &done_before {
            expect(&format!("runs of {job}, which was done"), ran.get(job), ran_before.get(job))?;
        }
        for (job, count) in &ran {
            let at_most = if is_again && options.is_empty() { 2 } else { 1 };
            expect(&format!("too many runs of {job}"), *count > at_most, false)?;
        }
        let done = in_state(scene, &tool, &log, "succeeded");
        for job in &done {
            expect(
                &format!("the output of {job}, which is recorded as done"),
                output_of(&files, job),
                true,
            )?;
        }
        if status.success() {
            expect("jobs that are done", done, JOBS.map(str::to_owned).into())?;
            return Ok(String::new());
        }
        // What may have run and must not run again is left, and told.
        let is_told = |state| !in_state(scene, &tool, &log, state).is_empty();
        if is_again && status.code() == Some(123) && is_told("unknown") {
            return Ok(String::new());
        }
        Err(Fault::Told(status.to_string()))
    }))
}

/// Returns true if a folder has the whole output of a job.
fn output_of(files: &Path, job: &str) -> bool {
    let entries = fs::read_dir(files).into_iter().flatten().flatten();
    let folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let wanted = format!("out {job}\n");
    folders.iter().any(|folder| {
        let has_facts =
            fs::read(folder.join("job.json")).is_ok_and(|bytes| bytes.ends_with(b"}\n"));
        has_facts && fs::read_to_string(folder.join("stdout")).is_ok_and(|text| text == wanted)
    })
}

/// Returns the jobs that a log has in a state, read without failing calls.
fn in_state(scene: &Scene, tool: &Path, log: &Path, state: &str) -> Vec<String> {
    if !log.exists() {
        return Vec::new();
    }
    crate::scene::pause(|| {
        let mut command = Command::new(tool);
        let listed =
            run_program(scene, command.args(["jobs", "--json", "--state", state]).arg(log));
        let (_, stdout) = listed.unwrap_or_default();
        let is_of = |job: &str| {
            let word = format!("echo out {job}'");
            stdout.lines().any(|line| line.contains(&word))
        };
        JOBS.iter().filter(|job| is_of(job)).map(|job| (*job).to_owned()).collect()
    })
}

/// Makes a log of a batch of which a job fails once, for each pass; a pass continues it.
fn resume(scene: &Scene) -> Result<Pass, Fault> {
    let tool = tool()?;
    let paths = |scene: &Scene, pass: u32| {
        ["log", "ran", "flag"].map(|name| scene.folder.join(format!("{name}.{pass}")))
    };
    for pass in 0..4 {
        let [log, ran, flag] = paths(scene, pass);
        let flag = flag.display();
        let script = format!(
            "echo {{}} >>{}; [ {{}} != b ] || [ -e {flag} ] || {{ >{flag}; exit 1; }}",
            ran.display()
        );
        let mut command = Command::new(&tool);
        command.args(["batch", "-j2", "--quiet", "--log"]).arg(log);
        command.args(["--", "/bin/sh", "-c", &script, ":::"]).args(JOBS);
        let (status, _) = run_program(scene, &mut command)?;
        expect("code of a batch with a failure", status.code(), Some(123))?;
    }
    Ok(Box::new(move |scene| {
        let [log, ran, _] = paths(scene, scene.pass.get());
        let mut command = Command::new(&tool);
        command.args(["batch", "--resume", "--retry-failed", "--quiet"]).arg(log);
        let (status, _) = run_program(scene, &mut command)?;
        let ran = runs(&ran);
        for (job, most) in [("a", 1), ("b", 2), ("c", 1)] {
            expect(&format!("too many runs of {job}"), ran.get(job) > Some(&most), false)?;
        }
        if !status.success() {
            return Err(Fault::Told(status.to_string()));
        }
        expect("runs of b", ran.get("b"), Some(&2))?;
        Ok(String::new())
    }))
}

/// Makes a log; each pass lists it.
fn jobs(scene: &Scene) -> Result<Pass, Fault> {
    let tool = tool()?;
    let log = scene.folder.join("log");
    let mut command = Command::new(&tool);
    command.args(["batch", "-j2", "--quiet", "--log"]).arg(&log).args(batch_words(scene));
    let (status, _) = run_program(scene, &mut command)?;
    expect("code", status.code(), Some(0))?;
    Ok(Box::new(move |scene| {
        let mut command = Command::new(&tool);
        let (status, stdout) = run_program(scene, command.args(["jobs", "--json"]).arg(&log))?;
        if !status.success() {
            return Err(Fault::Told(status.to_string()));
        }
        expect("jobs", stdout.matches("\"succeeded\"").count(), JOBS.len())?;
        Ok(String::new())
    }))
}

/// The interpreter that has the package.
const INTERPRETER: &str = "PIPEWRIGHT_NET_PYTHON";

const SCRIPT: &str = r#"
import os, sys, pipewright
kind, tally, name = sys.argv[1:]
args = ["/bin/sh", "-c", f"echo {name}.a >>{tally}; cat; echo err >&2; exit 7"]
# What it imports when it is first used belongs to the interpreter.
pipewright.run(["/bin/true"], capture_output=True)
with pipewright.Popen(["/bin/true"], stdin=-1, stdout=-1, stderr=-1) as child:
    child.communicate(b"")
try:
    os.close(-1009)
except OSError:
    pass
try:
    if kind == "run":
        done = pipewright.run(args, input=b"x" * 100000, capture_output=True)
        found = (done.returncode, done.stdout, done.stderr)
    else:
        with pipewright.Popen(args, stdin=-1, stdout=-1, stderr=-1) as child:
            found = (*child.communicate(b"x" * 100000), child.returncode)
            found = (found[2], found[0], found[1])
except (OSError, pipewright.SubprocessError, MemoryError) as error:
    print("told", error)
    sys.exit(3)
sys.exit(0 if found == (7, b"x" * 100000, b"err\n") else f"untrue: {found[0]} {len(found[1])} {found[2]}")
"#;

fn python(kind: &'static str) -> Result<Pass, Fault> {
    let interpreter = std::env::var_os(INTERPRETER).ok_or_else(|| {
        Fault::Skip(format!("net-python {INTERPRETER} names no Python with the package"))
    })?;
    Ok(Box::new(move |scene| {
        let mut command = Command::new(&interpreter);
        command.args(["-c", SCRIPT, kind]).arg(scene.folder.join("tally"));
        let (status, stdout) = run_program(scene, command.arg(scene.pass.get().to_string()))?;
        match status.code() {
            Some(0) => {
                scene.ran("a")?;
                Ok(String::new())
            }
            Some(3) => Err(Fault::Told(stdout)),
            _ => Err(Fault::Untrue(status.to_string())),
        }
    }))
}
