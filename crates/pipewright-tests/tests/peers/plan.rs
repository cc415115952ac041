//! The plan of a case: the script of the hostile worker, the options of the host, and its calls. A seed makes it.

use std::time::Duration;

/// A generator of numbers: xorshift.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below that one.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most.max(1)
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// The host of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    Pool,
    Channel,
}

/// The way in which a caller makes its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By `Pool::call`, on a borrowed connection if there is one.
    Call,
    Begin,
    /// The reply comes in pieces.
    Pieces,
    /// Items follow the request.
    Items,
    /// Each question is answered.
    Answers,
}

/// Workers of one kind.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    make: fn(&mut Dice, &mut Plan),
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    #[expect(dead_code, reason = "printed")]
    pub(crate) seed: u64,
    pub(crate) host: Host,
    pub(crate) script: String,
    /// Only the first worker is hostile.
    pub(crate) has_honest: bool,
    /// The script breaks no rule of the wire.
    pub(crate) is_honest: bool,
    pub(crate) ring: usize,
    pub(crate) most: u64,
    pub(crate) workers: usize,
    pub(crate) max_jobs: Option<u64>,
    /// Each worker is reset between calls.
    pub(crate) resets: bool,
    pub(crate) calls_per_worker: usize,
    /// The time for each step of a handshake.
    pub(crate) handshake: Duration,
    /// The pool takes the lines of its workers.
    pub(crate) takes_lines: bool,
    /// The workers are silent after the calls, for a while in which the host has nothing to do.
    pub(crate) is_silent: bool,
    /// No cancelled call ends its worker.
    pub(crate) is_patient: bool,
    pub(crate) is_idempotent: bool,
    pub(crate) way: Way,
    pub(crate) callers: usize,
    pub(crate) calls: usize,
    pub(crate) bytes: usize,
    pub(crate) timeout: Duration,
    /// Ends by `shut_down` while calls wait.
    pub(crate) shuts_down: bool,
    /// The time that a shutdown gives to calls.
    pub(crate) drain: Duration,
    /// The time before the first call: the connection is lent by then.
    pub(crate) rest: Duration,
}

impl Plan {
    pub(crate) fn new(family: &Family, seed: u64) -> Plan {
        let salt = |sum: u64, it| sum.wrapping_mul(131) + u64::from(it);
        let salt = family.name.bytes().fold(7, salt);
        let mut dice = Dice::new(seed ^ salt);
        let mut plan = Plan {
            seed,
            host: Host::Pool,
            script: String::new(),
            has_honest: dice.below(2) == 0,
            is_honest: false,
            ring: [0, 64 << 10, 1 << 20][dice.below(3) as usize],
            most: 8 << 20,
            workers: 2,
            max_jobs: None,
            resets: false,
            calls_per_worker: 1,
            handshake: Duration::from_secs(10),
            takes_lines: false,
            is_silent: false,
            is_patient: false,
            is_idempotent: dice.below(3) == 0,
            way: [Way::Call, Way::Begin, Way::Pieces][dice.below(3) as usize],
            callers: 2,
            calls: 3,
            bytes: [8, 100, 5_000, 100_000][dice.below(4) as usize],
            timeout: Duration::from_millis(200),
            shuts_down: false,
            drain: Duration::from_secs(20),
            rest: Duration::from_millis([0, 100][dice.below(2) as usize]),
        };
        (family.make)(&mut dice, &mut plan);
        plan
    }
}

fn any_ring(dice: &mut Dice) -> usize {
    [64 << 10, 1 << 20, 4 << 20][dice.below(3) as usize]
}

/// Returns steps of all kinds in any order.
fn any_steps(dice: &mut Dice) -> String {
    let mut steps = Vec::new();
    for _ in 0..1 + dice.below(7) {
        let number = dice.below(40);
        let step = dice.one(&[
            "take",
            "take",
            "take",
            "reply:8",
            "reply:100000:65536",
            "reply:300000:1000",
            "fail",
            "early:0",
            "items",
            "items:3:20000",
            "credit",
            "credit:4294967295",
            "ask",
            "ask:2",
            "ghost:2:1048576:65536",
            "ghost:1:2000:1",
            "half-header",
            "half:1",
            "half:0",
            "junk",
            "junk:0:16",
            "kind:11:0",
            "kind:16:0",
            "kind:9:0",
            "kind:27:0",
            "wakes:1:20",
            "full-ring:20:16",
            "pad",
            "head:64",
            "head:65",
            "tail:64",
            "tail:1000000",
            "odd",
            "handles:5",
            "handles:64",
            "handles:3:3",
            "deaf",
            "mute",
            "goodbye",
            "urgent:2",
            "twice",
            "shout:100",
            "curse",
            "talk:1:50",
            "rewrite:20",
            "restless:0:20",
            "restless:1:20",
            "reverse:20",
            "heir:300",
            "pause:20",
            "close",
            "stubborn",
            "exit:0",
            "exit:3",
            "abort",
            "serve:2",
            "listen:30",
        ]);
        steps.push(format!("{step} pause:{number}"));
    }
    steps.push(
        dice.one(&["exit:0", "pause:400", "serve", "close pause:300", "listen:300"]).to_owned(),
    );
    steps.join(" ")
}

pub(crate) const FAMILIES: &[Family] = &[
    Family { name: "anything", make: |dice, plan| plan.script = any_steps(dice) },
    Family {
        name: "anything-else",
        make: |dice, plan| {
            plan.script = any_steps(dice);
            plan.way = [Way::Items, Way::Answers][dice.below(2) as usize];
        },
    },
    Family {
        name: "messages-of-no-call",
        make: |dice, plan| {
            let count = 24 + dice.below(40);
            plan.script = format!(
                "{} ghost:{count}:8388608:262144 pause:400",
                dice.one(&["pause:0", "pause:150", "take"])
            );
            (plan.ring, plan.has_honest) = (4 << 20, true);
        },
    },
    Family {
        name: "crumbs",
        make: |dice, plan| {
            // The caller waits for the first byte of a message that never ends.
            let of_call = dice.below(2);
            plan.script = format!("take ghost:4:8388608:1:{of_call}");
            (plan.ring, plan.bytes) = (1 << 20, 100);
        },
    },
    Family {
        name: "wakes",
        make: |dice, plan| {
            plan.script =
                format!("{} wakes:{}:8000", dice.one(&["pause:0", "take"]), 1 + dice.below(8));
        },
    },
    Family {
        name: "full-ring",
        make: |dice, plan| {
            plan.script = format!("take full-ring:8000:{}", dice.one(&["16", "18", "21", "22"]));
            plan.ring = any_ring(dice);
        },
    },
    Family {
        name: "credit-without-end",
        make: |dice, plan| {
            plan.script = "take credit:4294967295 pause:800".to_owned();
            (plan.way, plan.bytes, plan.callers) = (Way::Items, 64 << 10, 2);
            plan.timeout = Duration::from_millis(600);
            plan.is_idempotent = dice.below(2) == 0;
        },
    },
    Family {
        name: "early-replies",
        make: |_, plan| {
            plan.script =
                "pause:100 ".to_owned() + &"early:0 early:1 early:2 early:3 pause:60 ".repeat(6);
            (plan.bytes, plan.ring, plan.has_honest) = (4 << 20, 64 << 10, false);
            plan.way = Way::Begin;
        },
    },
    Family {
        name: "questions",
        make: |dice, plan| {
            plan.script = format!("take ask:{}:{}", 100 + dice.below(200), 1 + dice.below(3));
            plan.way = Way::Answers;
        },
    },
    Family {
        name: "delivered",
        make: |dice, plan| {
            plan.script = format!("deaf listen:{} exit:3", 20 + dice.below(100));
            (plan.ring, plan.bytes, plan.is_idempotent, plan.has_honest) =
                (1 << 20, 8192, false, false);
            (plan.workers, plan.callers, plan.rest) = (1, 1, Duration::from_millis(100));
            plan.timeout = Duration::from_millis(800);
            plan.calls = 10;
            plan.way = [Way::Call, Way::Begin][dice.below(2) as usize];
        },
    },
    Family {
        name: "descriptors",
        make: |dice, plan| {
            // The host reads while a call waits for its answer, and parked ones stay as long as the worker.
            let step = dice.one(&["take handles:64", "take handles:40 handles:20"]);
            plan.script = format!("{step} pause:150 serve");
        },
    },
    Family {
        name: "slow-descriptors",
        make: |dice, plan| {
            plan.script = dice
                .one(&["take linger:5", "take handles:8:8 serve", "handles:64:64 serve"])
                .to_owned();
            plan.has_honest = true;
        },
    },
    Family {
        name: "patience",
        make: |dice, plan| {
            plan.script = format!("listen:{} exit:0", 500 + dice.below(400));
            (plan.is_patient, plan.workers, plan.has_honest) = (true, 1, false);
            plan.timeout = Duration::from_millis(150);
            (plan.is_honest, plan.callers) = (true, 1);
        },
    },
    Family {
        name: "used-up",
        make: |dice, plan| {
            plan.script = "serve".to_owned();
            (plan.shuts_down, plan.is_honest, plan.callers) = (true, true, 4);
            (plan.max_jobs, plan.workers) = (Some(1 + dice.below(2)), 1 + dice.below(2) as usize);
            (plan.way, plan.timeout) = (Way::Begin, Duration::from_secs(30));
        },
    },
    Family {
        name: "shut-down",
        make: |dice, plan| {
            plan.script = dice
                .one(&[
                    "freeze",
                    "take freeze",
                    "stubborn take pause:20000",
                    "take stubborn wakes:2:20000",
                    "take full-ring:20000:16",
                    "talk:1:20000 take pause:20000",
                    "take half:1 pause:20000",
                    "goodbye pause:20000",
                    "shake-linger:5:3:3",
                    "take heir:3000 pause:3000",
                ])
                .to_owned();
            (plan.shuts_down, plan.drain) = (true, Duration::from_millis(500));
            (plan.way, plan.timeout, plan.has_honest) =
                (Way::Begin, Duration::from_secs(30), false);
        },
    },
    Family {
        name: "slow-exits",
        make: |dice, plan| {
            let script = [
                "stubborn serve pause:1500",
                "close pause:1500",
                "take reply:8 pause:1 close pause:1500",
            ];
            plan.script = dice.one(&script).to_owned();
            (plan.max_jobs, plan.is_honest, plan.has_honest) = (Some(1), false, false);
            (plan.calls, plan.way) = (40, Way::Begin);
        },
    },
    Family {
        name: "handshake-descriptors",
        make: |dice, plan| {
            // Passed as memory, with a frame that has one, with none, and with half a frame until the deadline.
            let (count, place) = (1 + dice.below(2) * 2, dice.below(4));
            plan.script = format!("shake-linger:5:{count}:{place}");
            (plan.has_honest, plan.ring) = (true, 64 << 10);
            plan.handshake = Duration::from_millis(600);
            plan.timeout = Duration::from_millis(300);
            plan.calls = 6;
        },
    },
    Family {
        name: "handshakes",
        make: |dice, plan| {
            let number = dice.below(4);
            plan.script = match dice.below(4) {
                0 => format!("shake-crumbs:{}", [0, 1, 30, 2000][number as usize]),
                1 => format!("shake-words:{}:{number}:{}", dice.below(2), dice.below(1500)),
                2 => format!("shake-flood:{}", [9, 2, 16, 1][number as usize]),
                _ => format!(
                    "shake-object:{}:{}",
                    dice.below(6),
                    [1_u64 << 16, 0, 3, 1 << 62][number as usize]
                ),
            };
            plan.handshake = Duration::from_millis(400);
        },
    },
    Family {
        name: "talkers",
        make: |dice, plan| {
            plan.script = format!("talk:{}:3000 curse serve", 1 + dice.below(2));
            (plan.takes_lines, plan.has_honest) = (dice.below(2) == 0, dice.below(2) == 0);
            plan.calls = 20;
        },
    },
    Family {
        name: "last-words",
        make: |dice, plan| {
            plan.script = dice
                .one(&["take shout:800000 serve", "take curse abort", "curse take abort"])
                .to_owned();
        },
    },
    Family {
        name: "frozen",
        make: |dice, plan| {
            plan.script = dice
                .one(&[
                    "freeze",
                    "take freeze",
                    "take half:1 freeze",
                    "goodbye freeze",
                    "serve:1 freeze",
                ])
                .to_owned();
            plan.is_silent = true;
        },
    },
    Family {
        name: "heirs",
        make: |dice, plan| {
            let later = dice.one(&[
                "serve",
                "wakes:2:1500",
                "talk:1:1500 full-ring:1500:16",
                "take exit:0",
            ]);
            plan.script =
                format!("{} heir:1500 {later}", dice.one(&["pause:0", "take", "take reply:8"]));
        },
    },
    Family {
        name: "shifting-records",
        make: |dice, plan| {
            plan.script = format!("{} rewrite:1000", dice.one(&["pause:0", "take"]));
            plan.ring = any_ring(dice);
            plan.way = [Way::Call, Way::Pieces][dice.below(2) as usize];
        },
    },
    Family {
        name: "restless-words",
        make: |dice, plan| {
            let (first, second) = (dice.below(2), dice.below(2));
            plan.script = format!("restless:{first}:600 serve:1 take restless:{second}:600");
            (plan.ring, plan.bytes) = (64 << 10, [100, 30_000][dice.below(2) as usize]);
        },
    },
    Family {
        name: "resets",
        make: |dice, plan| {
            let answers = dice.one(&["", ":27:27", ":19", ":18", ":27:18", ":26"]);
            plan.script =
                format!("{} resets{answers} serve", dice.one(&["pause:0", "kind:27:0", "take"]));
            (plan.resets, plan.calls) = (true, 4);
        },
    },
    Family {
        name: "many-calls",
        make: |dice, plan| {
            plan.script = dice
                .one(&[
                    "reverse:50 serve",
                    "take twice serve",
                    "take take items:2:8 twice",
                    "take take fail reply:8 exit:0",
                ])
                .to_owned();
            (plan.calls_per_worker, plan.callers, plan.way) = (4, 6, Way::Begin);
            (plan.is_honest, plan.has_honest) = (plan.script.starts_with("reverse"), false);
        },
    },
    Family {
        name: "urgent",
        make: |dice, plan| {
            plan.script = format!("take urgent:{} pause:2000", 1 + dice.below(3));
            (plan.is_silent, plan.is_patient) = (true, true);
            (plan.callers, plan.calls) = (1, 1);
            plan.ring = [0, 64 << 10][dice.below(2) as usize];
        },
    },
    Family {
        name: "early-exits",
        make: |dice, plan| {
            let bytes = 8 + dice.below(2) * 100_000;
            let script = [
                format!("take take items:16:4 pause:{} reply:8 exit:0", dice.below(3)),
                format!("take take items:4:100000 reply:{bytes} exit:0"),
                format!("take take reply:{bytes} exit:0"),
            ];
            plan.script = script[dice.below(3) as usize].clone();
            (plan.is_honest, plan.has_honest, plan.workers) = (true, false, 1);
            (plan.way, plan.callers, plan.calls) = (Way::Pieces, 1, 12);
            plan.timeout = Duration::from_secs(10);
        },
    },
    Family {
        name: "early-answers",
        make: |dice, plan| {
            plan.script = format!("take credit:16 take take pause:{} fail exit:0", dice.below(4));
            (plan.is_honest, plan.has_honest, plan.workers) = (true, false, 1);
            (plan.way, plan.callers, plan.calls, plan.bytes) = (Way::Items, 1, 8, 100_000);
            plan.ring = [0, 64 << 10][dice.below(2) as usize];
            plan.timeout = Duration::from_secs(10);
        },
    },
    Family {
        name: "halves",
        make: |dice, plan| {
            plan.script = format!("take half:{} pause:8000", 1 + dice.below(3));
            plan.ring = 64 << 10;
        },
    },
    Family {
        name: "other-halves",
        make: |dice, plan| {
            let half = dice.one(&["half:0", "half-header", "half-header pad", "half:0 wakes:1:50"]);
            plan.script = format!("take {half} pause:8000");
            plan.ring = 64 << 10;
        },
    },
    Family {
        name: "channel-wakes",
        make: |dice, plan| {
            plan.host = Host::Channel;
            plan.script = format!("wakes:{}:8000", 1 + dice.below(8));
        },
    },
    Family {
        name: "channel-full-ring",
        make: |dice, plan| {
            plan.host = Host::Channel;
            plan.script = "full-ring:8000:16".to_owned();
            plan.ring = any_ring(dice);
        },
    },
    Family {
        name: "channel-halves",
        make: |dice, plan| {
            plan.host = Host::Channel;
            let half = ["half-message:1", "half-message:0", "half-header", "kind:16:0"]
                [dice.below(4) as usize];
            plan.script = format!("{half} pause:8000");
            plan.ring = any_ring(dice);
        },
    },
];
