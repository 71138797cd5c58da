//! The date that `strftime_now` formats.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// A date and time of day, without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateTime {
    seconds: i64,
}

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

impl DateTime {
    /// From seconds since 1970-01-01 00:00:00.
    pub fn from_unix(seconds: i64) -> DateTime {
        DateTime { seconds }
    }

    /// Seconds since 1970-01-01 00:00:00.
    pub fn unix(self) -> i64 {
        self.seconds
    }

    /// The clock's time, UTC.
    pub fn now() -> DateTime {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        DateTime {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        }
    }

    /// (year, month 1..=12, day 1..=31), proleptic Gregorian.
    fn date(self) -> (i64, usize, i64) {
        // Days since 0000-03-01; an era is 400 years, a year starts in March so that leap days come last.
        let days = self.seconds.div_euclid(86_400).saturating_add(719_468);
        let (era, doe) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let yoe = doe
            .saturating_sub(doe / 1460)
            .saturating_add(doe / 36_524)
            .saturating_sub(doe / 146_096)
            / 365;
        let doy = doe.saturating_sub(
            yoe.saturating_mul(365)
                .saturating_add(yoe / 4)
                .saturating_sub(yoe / 100),
        );
        let mp = doy.saturating_mul(5).saturating_add(2) / 153;
        let day = doy
            .saturating_sub(mp.saturating_mul(153).saturating_add(2) / 5)
            .saturating_add(1);
        let month = if mp < 10 {
            mp.saturating_add(3)
        } else {
            mp.saturating_sub(9)
        };
        let year = yoe
            .saturating_add(era.saturating_mul(400))
            .saturating_add(i64::from(month <= 2));
        (year, usize::try_from(month).unwrap_or(1), day)
    }

    /// Formats like Python's `strftime` in the C locale. `Err` names a directive that is not known.
    pub fn strftime(self, format: &str) -> Result<String, String> {
        let (year, month, day) = self.date();
        let time = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        let weekday = self
            .seconds
            .div_euclid(86_400)
            .saturating_add(4)
            .rem_euclid(7);
        let day_name = usize::try_from(weekday)
            .ok()
            .and_then(|i| DAYS.get(i))
            .copied()
            .unwrap_or("");
        let month_name = month
            .checked_sub(1)
            .and_then(|i| MONTHS.get(i))
            .copied()
            .unwrap_or("");
        let hour12 = (hour.saturating_add(11) % 12).saturating_add(1);
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut directive = chars.next();
            let plain = directive == Some('-');
            if plain {
                directive = chars.next();
            }
            let number = |out: &mut String, n: i64| {
                let _ = if plain {
                    write!(out, "{n}")
                } else {
                    write!(out, "{n:02}")
                };
            };
            match directive {
                Some('Y') => number(&mut out, year),
                Some('y') => number(&mut out, year.rem_euclid(100)),
                Some('m') => number(&mut out, i64::try_from(month).unwrap_or(0)),
                Some('d') => number(&mut out, day),
                Some('H') => number(&mut out, hour),
                Some('I') => number(&mut out, hour12),
                Some('M') => number(&mut out, minute),
                Some('S') => number(&mut out, second),
                Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
                Some('B') => out.push_str(month_name),
                Some('b' | 'h') => out.push_str(month_name.get(..3).unwrap_or("")),
                Some('A') => out.push_str(day_name),
                Some('a') => out.push_str(day_name.get(..3).unwrap_or("")),
                Some('F') => drop(write!(out, "{year}-{month:02}-{day:02}")),
                Some('T') => drop(write!(out, "{hour:02}:{minute:02}:{second:02}")),
                Some('j') => {
                    let start = DateTime::first_of(year);
                    let n = self
                        .seconds
                        .saturating_sub(start)
                        .div_euclid(86_400)
                        .saturating_add(1);
                    let _ = if plain {
                        write!(out, "{n}")
                    } else {
                        write!(out, "{n:03}")
                    };
                }
                Some('w') => drop(write!(out, "{weekday}")),
                Some('z' | 'Z') => {} // no zone, as Python's naive datetime
                Some('n') => out.push('\n'),
                Some('%') => out.push('%'),
                Some(other) => return Err(format!("strftime: %{other} is not known")),
                None => return Err("strftime: the format ends in %".to_owned()),
            }
        }
        Ok(out)
    }

    /// Seconds at the start of a year.
    fn first_of(year: i64) -> i64 {
        let y = year.saturating_sub(1);
        let days = y
            .saturating_mul(365)
            .saturating_add(y.div_euclid(4))
            .saturating_sub(y.div_euclid(100))
            .saturating_add(y.div_euclid(400));
        days.saturating_sub(719_162).saturating_mul(86_400)
    }
}
