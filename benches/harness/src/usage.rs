//! `--help` of the benchmark programs. Without it, a program would start to measure.

use std::io::{self, Write};
use std::process::exit;

/// The request in a program's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// Run the program.
    Work,
    /// Print the help.
    Help,
    /// An unknown option.
    Unknown(String),
}

/// Prints `usage` and exits if `--help` or `-h` is among the arguments. Exits with code 2 if an
/// option is neither in `options` nor one that `cargo bench` adds. A closed stdout is ignored.
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
