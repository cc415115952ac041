//! Attributes that all jobs of a batch start with: an empty environment, a user, a niceness, a umask and limits of each
//! tree.

use pipewright::{Command, Limits};
use serde::{Deserialize, Serialize};

/// The attributes of every job of a batch, beside its own settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobAttributes {
    /// True to give a job no variable but those of the batch and its own.
    pub env_clear: bool,
    /// The user that a job runs as.
    pub user: Option<JobUser>,
    /// The number that is added to the niceness.
    pub nice: Option<i32>,
    /// The umask.
    pub umask: Option<u32>,
    /// The limits of all processes of a job together.
    #[serde(with = "limits")]
    pub limits: Option<Limits>,
}

/// The user that a job runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobUser {
    /// The number of the user.
    pub user: u32,
    /// The number of the group.
    pub group: u32,
    /// The numbers of the supplementary groups.
    pub groups: Vec<u32>,
}

impl JobUser {
    /// Creates a user from numbers.
    #[must_use]
    pub fn new(user: u32, group: u32, groups: Vec<u32>) -> JobUser {
        JobUser { user, group, groups }
    }
}

impl JobAttributes {
    /// Sets all but the limits. Call it before the variables of the job are set.
    pub(super) fn set(&self, command: &mut Command) {
        if self.env_clear {
            command.env_clear();
        }
        if let Some(JobUser { user, group, groups }) = &self.user {
            command.uid(*user).gid(*group).groups(groups);
        }
        if let Some(nice) = self.nice {
            command.nice(nice);
        }
        if let Some(umask) = self.umask {
            command.umask(umask);
        }
    }

    /// Returns the limits of a job that has these by itself, for its memory.
    pub(super) fn limits_with(&self, own: Option<Limits>) -> Option<Limits> {
        let Some(mut limits) = self.limits else { return own };
        if let Some(own) = own {
            limits.memory_max_bytes = own.memory_max_bytes;
            limits.memory_swap_max_bytes =
                own.memory_swap_max_bytes.or(limits.memory_swap_max_bytes);
        }
        Some(limits)
    }
}

/// Limits travel as their values.
mod limits {
    use std::time::Duration;

    use pipewright::Limits;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Values {
        memory_max_bytes: Option<u64>,
        memory_swap_max_bytes: Option<u64>,
        cpu_time_per_second: Option<Duration>,
        pids_max: Option<u64>,
        oom_group: bool,
        best_effort: bool,
    }

    pub(super) fn serialize<S: Serializer>(
        limits: &Option<Limits>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let values = limits.as_ref().map(|limits| Values {
            memory_max_bytes: limits.memory_max_bytes,
            memory_swap_max_bytes: limits.memory_swap_max_bytes,
            cpu_time_per_second: limits.cpu_time_per_second,
            pids_max: limits.pids_max,
            oom_group: limits.oom_group,
            best_effort: limits.best_effort,
        });
        values.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Limits>, D::Error> {
        let values = Option::<Values>::deserialize(from)?;
        Ok(values.map(|values| {
            let mut limits = Limits::new();
            limits.memory_max_bytes = values.memory_max_bytes;
            limits.memory_swap_max_bytes = values.memory_swap_max_bytes;
            limits.cpu_time_per_second = values.cpu_time_per_second;
            limits.pids_max = values.pids_max;
            limits.oom_group = values.oom_group;
            limits.best_effort = values.best_effort;
            limits
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_travel_whole() {
        let limits = Limits::new().memory_max(1 << 30).cpu_max(1.5).pids_max(7).oom_group();
        let all = JobAttributes {
            env_clear: true,
            user: Some(JobUser::new(1, 2, vec![3])),
            nice: Some(-4),
            umask: Some(0o22),
            limits: Some(limits.best_effort()),
        };
        for attributes in [all, JobAttributes::default()] {
            let text = serde_json::to_string(&attributes).unwrap();
            assert_eq!(serde_json::from_str::<JobAttributes>(&text).unwrap(), attributes);
        }
    }

    #[test]
    fn the_memory_of_a_job_takes_the_place_of_that_of_all() {
        let mut attributes = JobAttributes::default();
        let own = Limits::new().memory_max(5).memory_swap_max(0);
        assert_eq!(attributes.limits_with(Some(own)), Some(own));
        attributes.limits = Some(Limits::new().memory_max(9).memory_swap_max(8).pids_max(7));
        assert_eq!(attributes.limits_with(None), attributes.limits);
        let both = attributes.limits_with(Some(own)).unwrap();
        assert_eq!(both, own.pids_max(7));
    }
}
