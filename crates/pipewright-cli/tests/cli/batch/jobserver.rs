//! Slots that are shared with real makes, cargo and ninja, above and below: never more jobs at once than slots, and as
//! many.

use super::*;

/// The number of recipes of a makefile.
const RECIPES: u32 = 6;

/// Returns a shell command that logs its start, waits until `barrier` commands have started, and logs its end.
fn logged(barrier: u32) -> String {
    format!(
        "echo start >> $LOG; until [ $(grep -c start $LOG) -ge {barrier} ]; do sleep 0.01; done; \
         sleep 0.02; echo end >> $LOG"
    )
}

/// A folder with a log of jobs.
struct Logged(Place);

impl Logged {
    fn new() -> Logged {
        let place = Place::new();
        place.write("log", "");
        Logged(place)
    }

    /// Writes a makefile of independent recipes.
    fn makefile(&self, name: &str, recipe: &str) {
        let targets: Vec<String> = (0..RECIPES).map(|number| format!("t{number}")).collect();
        let targets = targets.join(" ");
        let recipe = recipe.replace('$', "$$");
        self.0.write(
            name,
            &format!("all: {targets}\n.PHONY: all {targets}\n{targets}:\n\t@{recipe}\n"),
        );
    }

    /// Runs a shell script with the tool as `$PW` and the log as `$LOG`, and no jobserver above.
    fn run(&self, script: &str) -> Output {
        let output = self.0.sh(&format!(
            "unset MAKEFLAGS CARGO_MAKEFLAGS MAKELEVEL; export LOG={}; {script}",
            self.0.path("log").display()
        ));
        let errors = err(&output);
        // Make tells if a jobserver is unavailable, and if tokens are missing or too many at its end.
        for word in ["make: warning", "make: ***", "INTERNAL", "unavailable"] {
            assert!(!errors.contains(word), "{errors}");
        }
        output
    }

    /// Returns the number of jobs that the log has, and the largest number of them that ran at one time.
    fn jobs(&self) -> (u32, u32) {
        let (mut jobs, mut running, mut most) = (0_u32, 0_u32, 0_u32);
        for line in self.0.read("log").lines() {
            match line {
                "start" => (jobs, running) = (jobs + 1, running + 1),
                "end" => running = running.checked_sub(1).unwrap(),
                other => panic!("{other}"),
            }
            most = most.max(running);
        }
        assert_eq!(running, 0, "a job has not ended");
        (jobs, most)
    }
}

fn has(program: &str) -> bool {
    version(program).is_some_and(|it| {
        // Before 4.2 a make passes its slots in another way, as that of macOS does.
        let is_old = out(&it).strip_prefix("GNU Make ").is_some_and(|version| {
            let mut parts = version.split(['.', '\n', ' ']).map_while(|it| it.parse::<u32>().ok());
            (parts.next(), parts.next()) < (Some(4), Some(2))
        });
        if is_old {
            pace::skipped(pace::Need::Version("make", "4.2"), "it has another jobserver");
        }
        !is_old
    })
}

#[test]
fn makes_in_jobs_share_the_slots_of_the_batch() {
    if !has("make") {
        return;
    }
    let logged_jobs = Logged::new();
    logged_jobs.makefile("Makefile", &logged(4));
    let output = logged_jobs.run("$PW batch --jobserver share -j4 -- make -k ::: all all");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    // The barrier needs all slots at once. Without a token each, the two makes could use five.
    assert_eq!(logged_jobs.jobs(), (2 * RECIPES, 4));
}

#[test]
fn makes_share_nothing_by_default() {
    if !has("make") {
        return;
    }
    let logged_jobs = Logged::new();
    logged_jobs.makefile("Makefile", &logged(1));
    let output = logged_jobs.run("$PW batch -j1 -- make -k ::: all");
    assert_eq!((output.status.code(), logged_jobs.jobs()), (Some(0), (RECIPES, 1)));
}

#[test]
fn a_job_on_several_cpus_takes_as_many_tokens() {
    if !has("make") {
        return;
    }
    let logged_jobs = Logged::new();
    logged_jobs.makefile("Makefile", &logged(1));
    // While the first job runs, the make in the second one has only its own slot.
    logged_jobs.0.write(
        "jobs",
        "{\"argv\":[\"sh\",\"-c\",\"until [ -e made ]; do sleep 0.05; done\"],\"cpus\":3}\n\
         {\"argv\":[\"sh\",\"-c\",\"make; touch made\"]}\n",
    );
    let script = "$PW batch --jobserver share -j4 --jsonl --from jobs";
    let output = logged_jobs.run(script);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(logged_jobs.jobs(), (RECIPES, 1));
}

#[test]
fn tokens_of_a_killed_make_come_back() {
    if !has("make") {
        return;
    }
    let logged_jobs = Logged::new();
    // More than the slots: the first make holds all tokens, and is killed once it does. Its job is stopped for its
    // output, because a limit of its time could come before.
    let hold = "echo start >> held; until [ $(grep -c start held) -ge 3 ]; do sleep 0.01; done; \
                echo all are held; sleep 1000";
    logged_jobs.makefile("first", hold);
    logged_jobs.makefile("second", &logged(3));
    let script =
        "$PW batch --jobserver share -j3 --resource one=1 --jsonl --from jobs --max-output 1";
    logged_jobs.0.write(
        "jobs",
        "{\"argv\":[\"make\",\"-f\",\"first\"],\"resources\":{\"one\":1}}\n\
         {\"argv\":[\"make\",\"-f\",\"second\"],\"resources\":{\"one\":1}}\n",
    );
    let output = logged_jobs.run(&format!("{script} --stop-signal KILL"));
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert_eq!(logged_jobs.0.lines("held").len(), 3);
    assert_eq!(logged_jobs.jobs(), (RECIPES, 3));
}

#[test]
fn batches_below_make_share_its_slots() {
    if !has("make") {
        return;
    }
    let logged_jobs = Logged::new();
    logged_jobs.0.write("job", &logged(4));
    let batch = "+@$(PW) batch --progress none -j4 --jobserver join -- sh ./job ::: 1 2 3 4 5 6";
    logged_jobs
        .0
        .write("Makefile", &format!("all: a b\n.PHONY: all a b\na:\n\t{batch}\nb:\n\t{batch}\n"));
    let output = logged_jobs.run("make -j4");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(logged_jobs.jobs(), (12, 4));
}

#[test]
fn a_make_in_a_job_takes_part_in_the_jobserver_above() {
    if !has("make") {
        return;
    }
    for options in ["", "-j1", "--jobserver off"] {
        let logged_jobs = Logged::new();
        logged_jobs.makefile("inner", &logged(3));
        logged_jobs.0.write(
            "Makefile",
            &format!("all:\n\t+@$(PW) batch --progress none {options} -- make -f ::: inner\n"),
        );
        let output = logged_jobs.run("make -j3");
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert_eq!(logged_jobs.jobs(), (RECIPES, 3), "{options}");
    }
}

#[test]
fn an_explicit_number_of_jobs_is_obeyed_below_make() {
    if !has("make") {
        return;
    }
    let logged_jobs = Logged::new();
    logged_jobs.0.write("job", &logged(5));
    let batch = "+@$(PW) batch --progress none -j5 -- sh ./job ::: 1 2 3 4 5 6";
    logged_jobs.0.write("Makefile", &format!("all:\n\t{batch}\n"));
    let output = logged_jobs.run("make -j2");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(logged_jobs.jobs(), (6, 5));
}

#[test]
fn a_recipe_without_plus_is_noted_and_runs() {
    if !has("make") {
        return;
    }
    let place = Place::new();
    place.write("Makefile", "all:\n\t@$(PW) batch --progress none -- echo ::: 1 2\n");
    let output = place.sh("unset MAKEFLAGS CARGO_MAKEFLAGS MAKELEVEL; make -j4");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(sorted(out(&output)), ["1", "2"]);
    // Newer makes share a FIFO, which a recipe without a plus can open.
    let errors = err(&output);
    let is_told = errors.contains("jobserver unavailable") && errors.contains("put + before");
    assert!(
        is_told
            || Command::new("make")
                .arg("--version")
                .output()
                .is_ok_and(|version| { out(&version).contains("GNU Make 4.4") }),
        "{errors}"
    );
}

#[test]
fn cargo_in_a_job_shares_the_slots_of_the_batch() {
    if !has("cargo") {
        return;
    }
    let logged_jobs = Logged::new();
    let place = &logged_jobs.0;
    place.write("Cargo.toml", "[workspace]\nresolver = \"2\"\nmembers = [\"p*\"]\n");
    let script = "fn main() {\n\
         let status = std::process::Command::new(\"sh\").arg(\"-c\").arg(JOB).status();\n\
         assert!(status.unwrap().success());\n}\n";
    let script = script.replace("JOB", &format!("{:?}", logged(2)));
    for number in 0..4 {
        let folder = format!("p{number}");
        std::fs::create_dir_all(place.path(&folder).join("src")).unwrap();
        let package =
            format!("[package]\nname = \"p{number}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        place.write(&format!("{folder}/Cargo.toml"), &package);
        place.write(&format!("{folder}/build.rs"), &script);
        place.write(&format!("{folder}/src/lib.rs"), "");
    }
    // The gate's flags are not for these packages.
    let output = logged_jobs.run(
        "unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS; \
         $PW batch --jobserver share -j2 -- cargo build --offline --quiet --jobs 8 --target-dir ::: target",
    );
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(logged_jobs.jobs(), (4, 2));
}

#[test]
fn ninja_in_a_job_shares_the_slots_of_the_batch() {
    let Ok(version) = Command::new("ninja").arg("--version").output() else {
        return pace::skipped(pace::Need::Program("ninja"), "there is no ninja here");
    };
    let version = out(&version);
    let mut parts = version.trim().split('.').map_while(|part| part.parse::<u32>().ok());
    if (parts.next(), parts.next()) < (Some(1), Some(13)) {
        return pace::skipped(pace::Need::Version("ninja", "1.13"), version);
    }
    let logged_jobs = Logged::new();
    let mut text = format!("rule job\n  command = {}\n", logged(2).replace('$', "$$"));
    for number in 0..RECIPES {
        text += &format!("build t{number}: job\n");
    }
    text += "build all: phony t0 t1 t2 t3 t4 t5\n";
    logged_jobs.0.write("build.ninja", &text);
    let output = logged_jobs.run("$PW batch --jobserver share -j2 -- ninja ::: all");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(logged_jobs.jobs(), (RECIPES, 2));
}
