//! Help of the programs that measure, so that none of them measures when it is asked what it does.

use std::io::{self, Write};
use std::process::exit;

/// What the arguments of a program ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// To do its work.
    Work,
    /// To say what it does.
    Help,
    /// What it does not know.
    Unknown(String),
}

/// Prints `usage` and ends the program when `--help` or `-h` is among its arguments; ends it with
/// code 2 when an option is neither in `options` nor one that `cargo bench` adds. A reader of the
/// output may have gone.
pub fn answer(usage: &str, options: &[&str]) {
    match asked(std::env::args().skip(1), options) {
        Asked::Work => {}
        Asked::Help => {
            writeln!(io::stdout(), "{usage}").ok();
            exit(0);
        }
        Asked::Unknown(option) => {
            writeln!(io::stderr(), "unknown option {option}\n\n{usage}").ok();
            exit(2);
        }
    }
}

fn asked(arguments: impl Iterator<Item = String>, options: &[&str]) -> Asked {
    let mut unknown = None;
    for argument in arguments {
        if argument == "--help" || argument == "-h" {
            return Asked::Help;
        }
        let is_known = argument == "--bench" || options.contains(&argument.as_str());
        if argument.starts_with('-') && !is_known {
            unknown.get_or_insert(argument);
        }
    }
    unknown.map_or(Asked::Work, Asked::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_given_and_unknown_options_are_refused() {
        let asked = |line: &str| asked(line.split_whitespace().map(str::to_owned), &["--rounds"]);
        assert_eq!(asked(""), Asked::Work);
        assert_eq!(asked("--bench 21"), Asked::Work);
        assert_eq!(asked("--rounds 3"), Asked::Work);
        assert_eq!(asked("--help"), Asked::Help);
        assert_eq!(asked("--round 3 -h"), Asked::Help);
        assert_eq!(asked("--round 3"), Asked::Unknown("--round".to_owned()));
    }
}
