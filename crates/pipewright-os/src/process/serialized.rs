//! Results as values of serde (feature `serde`), with the fields and words of `docs/json.md`.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::process::child::Containment;
use crate::process::limits::{
    HeldLimits, LimitMechanism, LimitUnavailable, MemoryLimit, OutOfMemory, Victim,
};
use crate::process::status::ExitStatus;
use crate::process::usage::{TreeUsage, Usage};

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

impl Serialize for Containment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl Serialize for LimitMechanism {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl Serialize for ExitStatus {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            exit_code: Option<i32>,
            signal: Option<String>,
        }
        let signal = self.terminating_signal().map(|signal| signal.to_string());
        Fields { exit_code: self.code(), signal }.serialize(to)
    }
}

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            user_seconds: f64,
            system_seconds: f64,
            peak_rss_bytes: Option<u64>,
            context_switches: Option<u64>,
        }
        let fields = Fields {
            user_seconds: self.user.as_secs_f64(),
            system_seconds: self.system.as_secs_f64(),
            peak_rss_bytes: self.peak_rss_bytes,
            context_switches: self.switches,
        };
        fields.serialize(to)
    }
}

impl Serialize for TreeUsage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            user_seconds: Option<f64>,
            system_seconds: Option<f64>,
            peak_memory_bytes: Option<u64>,
            peak_pids: Option<u64>,
            memory_stall_seconds: Option<f64>,
            cpu_stall_seconds: Option<f64>,
            io_stall_seconds: Option<f64>,
        }
        let fields = Fields {
            user_seconds: seconds(self.user),
            system_seconds: seconds(self.system),
            peak_memory_bytes: self.peak_memory_bytes,
            peak_pids: self.peak_pids,
            memory_stall_seconds: seconds(self.memory_stall),
            cpu_stall_seconds: seconds(self.cpu_stall),
            io_stall_seconds: seconds(self.io_stall),
        };
        fields.serialize(to)
    }
}

impl Serialize for LimitUnavailable {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            limit: &'static str,
            reason: &'a str,
            remedy: Option<&'a str>,
        }
        let (reason, remedy) = (&*self.reason, self.remedy.as_deref());
        Fields { limit: self.limit.name(), reason, remedy }.serialize(to)
    }
}

impl Serialize for HeldLimits {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            mechanism: Option<LimitMechanism>,
            memory_max_bytes: Option<u64>,
            memory_swap_max_bytes: Option<u64>,
            cpu_max: Option<f64>,
            pids_max: Option<u64>,
            oom_group: bool,
            sampled: Option<&'a str>,
            missing: &'a [LimitUnavailable],
        }
        let fields = Fields {
            mechanism: self.mechanism,
            memory_max_bytes: self.limits.memory_max_bytes,
            memory_swap_max_bytes: self.limits.memory_swap_max_bytes,
            cpu_max: seconds(self.limits.cpu_time_per_second),
            pids_max: self.limits.pids_max,
            oom_group: self.limits.oom_group,
            sampled: self.sampled.as_ref().map(|sampled| &*sampled.reason),
            missing: &self.missing,
        };
        fields.serialize(to)
    }
}

impl Serialize for OutOfMemory {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            limit: &'static str,
            limit_bytes: Option<u64>,
            peak_bytes: Option<u64>,
            victim: Option<&'a str>,
            victim_pid: Option<u32>,
            killed: u32,
        }
        let fields = Fields {
            limit: MemoryLimit::name(self.limit),
            limit_bytes: self.limit.bytes(),
            peak_bytes: self.peak_bytes,
            victim: self.victim.as_ref().map(Victim::name),
            victim_pid: self.victim.map(|victim| victim.pid()),
            killed: self.killed,
        };
        fields.serialize(to)
    }
}
