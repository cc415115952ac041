//! The times that Slurm prints.

use std::time::{Duration, SystemTime};

use crate::slurm::time::{duration, moment};

#[test]
fn durations_have_days_hours_minutes_and_seconds() {
    let seconds = |text| duration(text).map(|it| it.as_secs());
    assert_eq!(seconds("00:00:00"), Some(0));
    assert_eq!(seconds("01:02:03"), Some(3723));
    assert_eq!(seconds("30:00"), Some(1800));
    assert_eq!(seconds("2-00:00:01"), Some(172_801));
    assert_eq!(seconds("365-00:00:00"), Some(31_536_000));
    for text in ["", "UNLIMITED", "INVALID", "Partition_Limit", "5", "-1:00", "1:2:3:4", "+1:00"] {
        assert_eq!(duration(text), None, "{text}");
    }
    assert_eq!(duration("99999999999999999999-00:00:00"), None);
    assert_eq!(duration("18446744073709551615-00:00:00"), None);
}

#[test]
fn moments_are_in_utc() {
    let seconds = |text| Some(moment(text)?.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    // As `date -u -d TEXT +%s` prints them.
    assert_eq!(seconds("1970-01-01T00:00:00"), Some(Duration::ZERO));
    assert_eq!(seconds("2000-02-29T12:00:00"), Some(Duration::from_secs(951_825_600)));
    assert_eq!(seconds("2026-11-26T02:30:01"), Some(Duration::from_secs(1_795_660_201)));
    assert_eq!(seconds("2100-03-01T00:00:00"), Some(Duration::from_secs(4_107_542_400)));
    for text in ["Unknown", "N/A", "", "2026-11-26", "1969-12-31T00:00:00", "2026-13-01T00:00:00"] {
        assert_eq!(moment(text), None, "{text}");
    }
    assert_eq!(moment("2026-01-01T24:00:00"), None);
    assert_eq!(moment("99999-01-01T00:00:00"), None);
}
