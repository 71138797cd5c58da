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
        let parts = self.parts();
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
            match directive {
                Some(directive) => parts.write(directive, plain, &mut out)?,
                None => return Err("strftime: the format ends in %".to_owned()),
            }
        }
        Ok(out)
    }

    fn parts(self) -> Parts {
        let (year, month, day) = self.date();
        let time = self.seconds.rem_euclid(86_400);
        let days = self.seconds.div_euclid(86_400);
        let since_new_year = self.seconds.saturating_sub(DateTime::first_of(year));
        Parts {
            year,
            month: i64::try_from(month).unwrap_or(0),
            day,
            day_of_year: since_new_year.div_euclid(86_400).saturating_add(1),
            weekday: days.saturating_add(4).rem_euclid(7),
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
        }
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

/// A date and time of day in the parts that directives name.
struct Parts {
    year: i64,
    /// 1..=12.
    month: i64,
    day: i64,
    /// 1..=366.
    day_of_year: i64,
    /// 0 is Sunday.
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Parts {
    /// Writes what a directive stands for; `plain` numbers are not padded with zeros.
    fn write(&self, directive: char, plain: bool, out: &mut String) -> Result<(), String> {
        let hour12 = (self.hour.saturating_add(11) % 12).saturating_add(1);
        let (day_name, month_name) = (
            name(&DAYS, self.weekday),
            name(&MONTHS, self.month.saturating_sub(1)),
        );
        let number = |out: &mut String, n: i64, width: usize| {
            let width = if plain { 0 } else { width };
            let _ = write!(out, "{n:0width$}");
        };
        match directive {
            'Y' => number(out, self.year, 2),
            'y' => number(out, self.year.rem_euclid(100), 2),
            'm' => number(out, self.month, 2),
            'd' => number(out, self.day, 2),
            'j' => number(out, self.day_of_year, 3),
            'H' => number(out, self.hour, 2),
            'I' => number(out, hour12, 2),
            'M' => number(out, self.minute, 2),
            'S' => number(out, self.second, 2),
            'w' => number(out, self.weekday, 1),
            'p' => out.push_str(if self.hour < 12 { "AM" } else { "PM" }),
            'B' => out.push_str(month_name),
            'b' | 'h' => out.push_str(month_name.get(..3).unwrap_or("")),
            'A' => out.push_str(day_name),
            'a' => out.push_str(day_name.get(..3).unwrap_or("")),
            'F' => drop(write!(
                out,
                "{}-{:02}-{:02}",
                self.year, self.month, self.day
            )),
            'T' => drop(write!(
                out,
                "{:02}:{:02}:{:02}",
                self.hour, self.minute, self.second
            )),
            'z' | 'Z' => {} // no zone, as Python's naive datetime
            'n' => out.push('\n'),
            '%' => out.push('%'),
            other => return Err(format!("strftime: %{other} is not known")),
        }
        Ok(())
    }
}

fn name(names: &[&'static str], i: i64) -> &'static str {
    let i = usize::try_from(i).unwrap_or(usize::MAX);
    names.get(i).copied().unwrap_or("")
}
