//! The date as `strftime_now` of a template writes it, in UTC.
//!
//! Python uses local time, which would make a prompt depend on the machine's settings; templates only want the
//! date, so UTC it is.
//!
//! Invariant: defined for every instant and every format; an unknown directive is kept as it is.
//! Not here: measuring time.

use std::time::{SystemTime, UNIX_EPOCH};

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
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Formats `now` by a C `strftime` format.
pub(super) fn format(now: SystemTime, format: &str) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (year, month, day, day_of_year) = date(days);
    let (month_name, weekday) = (MONTHS[month - 1], DAYS[(days % 7) as usize]);
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let directive = characters.next();
        out.push_str(&match directive {
            Some('Y') => year.to_string(),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('e') => format!("{day:2}"),
            Some('j') => format!("{day_of_year:03}"),
            Some('B') => month_name.to_string(),
            Some('b' | 'h') => month_name[..3].to_string(),
            Some('A') => weekday.to_string(),
            Some('a') => weekday[..3].to_string(),
            Some('H') => format!("{hour:02}"),
            Some('I') => format!("{:02}", (hour + 11) % 12 + 1),
            Some('M') => format!("{minute:02}"),
            Some('S') => format!("{second:02}"),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_string(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('D') => format!("{month:02}/{day:02}/{:02}", year % 100),
            Some('Z') => "UTC".to_string(),
            Some('z') => "+0000".to_string(),
            Some('%') => "%".to_string(),
            Some(other) => format!("%{other}"),
            None => "%".to_string(),
        });
    }
    out
}

/// Year, month from 1, day from 1 and day of the year from 1, for days since 1970-01-01.
fn date(mut days: u64) -> (u64, usize, u64, u64) {
    // Whole periods of 400 years first, so that any instant takes a bounded number of steps.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = |year: u64| if leap(year) { 366 } else { 365 };
    while days >= length(year) {
        days -= length(year);
        year += 1;
    }
    let day_of_year = days + 1;
    let mut month = 0;
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1, day_of_year)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| format(UNIX_EPOCH + Duration::from_secs(seconds), "%d %b %Y %A %H:%M:%S %j");
        assert_eq!(at(0), "01 Jan 1970 Thursday 00:00:00 001");
        assert_eq!(at(951_782_399), "28 Feb 2000 Monday 23:59:59 059");
        assert_eq!(at(951_782_400), "29 Feb 2000 Tuesday 00:00:00 060");
        assert_eq!(at(1_735_689_599), "31 Dec 2024 Tuesday 23:59:59 366");
        assert_eq!(at(4_107_542_400), "01 Mar 2100 Monday 00:00:00 060");
    }

    #[test]
    fn unknown_directives_stay() {
        assert_eq!(format(UNIX_EPOCH, "%Q 100%"), "%Q 100%");
    }
}
