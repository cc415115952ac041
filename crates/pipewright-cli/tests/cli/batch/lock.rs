//! `lock`: one or several commands at a time, whatever ends them.

use std::os::unix::fs::MetadataExt as _;

use super::{Place, err, out, refused, sorted};

impl Place {
    /// Runs a script that uses locks in the folder of the test.
    fn locks(&self, script: &str) -> String {
        let output = self.sh(&format!("lock() {{ exec $PW lock --in . \"$@\"; }}\n{script}"));
        assert_eq!(err(&output), "");
        out(&output).to_owned()
    }
}

#[test]
fn one_command_runs_at_a_time_and_gives_its_exit_code() {
    let place = Place::new();
    let command = "mkdir held || echo clash; sleep 0.05; rmdir held; echo done";
    let script = format!("for i in 1 2 3 4; do (lock a -- sh -c '{command}') & done; wait");
    assert_eq!(place.locks(&script), "done\n".repeat(4));
    assert_eq!(place.locks("(lock a -- sh -c 'exit 7'); echo $?"), "7\n");
    // Another name is another lock, and so is the lock of this user without a folder.
    let own = format!("test-{}", std::process::id());
    let script = format!("lock a -- $PW lock --in . b -- $PW lock {own} -- echo three");
    assert_eq!(place.locks(&script), "three\n");
}

#[test]
fn so_many_commands_run_at_once_as_are_allowed_and_a_wait_has_its_own_exit_code() {
    let place = Place::new();
    let script = "for i in 1 2; do (lock a -j2 -- sh -c 'touch held$0; until [ -e go ]; do sleep 0.01; done' $i) & done
        until [ -e held1 ] && [ -e held2 ]; do sleep 0.01; done
        (lock a -j2 --timeout 0.1 -- touch ran 2>message); echo $?
        (lock a -j2 --timeout 0 -- touch ran 2>message); echo $?
        (lock a -j2 -- echo third) & touch go; wait";
    assert_eq!(place.locks(script), "75\n75\nthird\n");
    assert_eq!(place.read("message"), "pipewright: the lock a is not free\n");
    assert!(!place.path("ran").exists());
}

#[test]
fn a_holder_that_is_killed_has_the_lock_no_more_once_its_command_is_dead() {
    let place = Place::new();
    let command = "touch held; while :; do [ ! -e got ] || touch clash; sleep 0.01; done";
    let script = format!(
        "(lock a -- sh -c '{command}') & tool=$!
        until [ -e held ]; do sleep 0.01; done
        kill -9 $tool; (lock a -- sh -c 'touch got; sleep 0.2; echo got')"
    );
    assert_eq!(place.locks(&script), "got\n");
    assert!(!place.path("clash").exists());
}

#[test]
fn a_signal_ends_the_wait() {
    let place = Place::new();
    let script = "(lock a -- sh -c 'touch held; until [ -e go ]; do sleep 0.01; done') &
        until [ -e held ]; do sleep 0.01; done
        timeout -s INT 0.3 $PW lock --in . a -- touch ran; echo $?; touch go; wait";
    // `timeout` of coreutils ends so once it has sent its signal.
    assert_eq!(place.locks(script), "124\n");
    assert!(!place.path("ran").exists());
}

#[test]
fn a_link_or_a_pipe_in_the_place_of_a_lock_is_refused() {
    let place = Place::new();
    place.write("target", "");
    std::os::unix::fs::symlink(place.path("target"), place.path("a.1")).unwrap();
    place.make_pipe("b.1");
    for name in ["a", "b"] {
        let output = place.sh(&format!("exec $PW lock --in . {name} -- touch ran"));
        refused(&output, &["cannot lock"]);
    }
    refused(&place.sh("exec $PW lock ../a -- touch ran"), &["\"../a\" is not a name"]);
    refused(&place.sh("exec $PW lock a -j0 -- touch ran"), &["from 1 to 1000"]);
    refused(&place.sh("exec $PW lock --in missing a -- touch ran"), &["\"missing\""]);
    assert!(!place.path("ran").exists());
}

#[test]
fn all_users_can_open_a_lock_of_a_folder_whatever_the_mask_of_its_maker() {
    let place = Place::new();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    for (mask, name) in [("077", "a"), ("0", "b")] {
        assert_eq!(place.locks(&format!("umask {mask}; lock {name} -- echo ok")), "ok\n");
        assert_eq!(mode(&place.path(&format!("{name}.1"))), 0o644);
    }
    // But not that of a user alone.
    let name = format!("test-mask-{}", std::process::id());
    let output = place.sh(&format!("umask 0; $PW lock {name} -- echo ok"));
    assert_eq!((out(&output), err(&output)), ("ok\n", ""));
    let user = rustix::process::geteuid().as_raw();
    let own = format!("/tmp/pipewright-locks-{user}/{name}.1");
    assert_eq!(mode(own.as_ref()), 0o600);
    std::fs::remove_file(own).unwrap();
}

/// Another user who opens it in its first moment waits, and is not refused.
#[cfg(target_os = "linux")]
#[test]
fn a_lock_is_never_a_file_that_others_cannot_open() {
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    let place = Place::new();
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    let what = WatchFlags::CREATE | WatchFlags::ATTRIB;
    inotify::add_watch(&watch, place.path(""), what).unwrap();
    assert_eq!(place.locks("umask 077; lock a -- echo ok"), "ok\n");
    let mut room = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut room);
    let created = events.next().unwrap();
    assert_eq!(created.file_name().unwrap().to_bytes(), b"a.1");
    assert_eq!(created.events(), ReadFlags::CREATE);
    // Its rights were never changed.
    assert_eq!(events.next().unwrap_err(), rustix::io::Errno::AGAIN);
}

#[test]
fn the_folder_of_a_lock_may_be_named_by_a_link() {
    let place = Place::new();
    std::fs::create_dir(place.path("folder")).unwrap();
    std::os::unix::fs::symlink("folder", place.path("link")).unwrap();
    for folder in ["link", "link/", "./link/.", "folder"] {
        let script = format!("$PW lock --in {folder} a -- $PW lock --in link b -- echo two");
        let output = place.sh(&script);
        assert_eq!((out(&output), err(&output)), ("two\n", ""), "{folder}");
    }
    assert!(place.path("folder/a.1").exists() && place.path("folder/b.1").exists());
}

#[test]
fn a_lock_whose_file_was_removed_is_none() {
    let place = Place::new();
    let script =
        "(lock a -- sh -c 'touch held; until [ -e go ]; do sleep 0.01; done; echo first') &
        until [ -e held ]; do sleep 0.01; done
        (lock a -- sh -c '[ -e a.1 ] && echo second') & rm a.1; touch go; wait";
    assert_eq!(sorted(&place.locks(script)), ["first", "second"]);
}
