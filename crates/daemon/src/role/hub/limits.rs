//! The file of `hub run --limits`: limits of a hub, which SIGHUP changes while it runs.
//!
//! ```text
//! # Lines of NAME VALUE. What is not listed has its default.
//! node_players_max 20000
//! lease_s 30
//! duplicate_claim refuse
//! kick_roles admin,matchmaker
//! ```

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use hub::{DuplicateClaim, HubConfig, Role};

use crate::exit::{Failure, SystemFault};

/// Longest file, bytes.
const FILE_BYTES_MAX: usize = 64 << 10;

/// Reads the file, and returns `config` with its limits.
///
/// # Errors
///
/// One sentence with the path and the line.
pub(crate) fn read(path: &Path, config: &HubConfig) -> Result<HubConfig, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::file(path, SystemFault(&error)))?;
    parse(&text, config).map_err(|(line, fault)| {
        let mut failure = Failure::file(path, format_args!("line {line}: {fault}"));
        failure.line = Some(line);
        failure
    })
}

/// What is wrong in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// The file is too long.
    TooLong,
    /// Not two words.
    Form,
    /// No such limit.
    Name(String),
    /// An earlier line has it.
    Twice(String),
    /// The value, and what is expected.
    Value(String, &'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "more than {FILE_BYTES_MAX} bytes"),
            Self::Form => f.write_str("expected NAME VALUE"),
            Self::Name(name) => {
                write!(f, "found the limit {name:?}, expected one of ")?;
                for (index, (name, _)) in NUMBERS.iter().enumerate() {
                    write!(f, "{}{name}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str(", duplicate_claim, kick_roles")
            }
            Self::Twice(name) => write!(f, "an earlier line has {name}"),
            Self::Value(found, expected) => write!(f, "found {found:?}, expected {expected}"),
        }
    }
}

/// Sets a limit to a number.
type Set = fn(&mut HubConfig, u32);

const NUMBERS: [(&str, Set); 11] = [
    ("links_max", |config, value| config.links_max = count(value)),
    ("node_links_max", |config, value| {
        config.node_links_max = count(value);
    }),
    ("players_max", |config, value| {
        config.players_max = count(value);
    }),
    ("node_players_max", |config, value| {
        config.node_players_max = count(value);
    }),
    ("calls_max", |config, value| config.calls_max = count(value)),
    ("unacknowledged_mails_max", |config, value| {
        config.unacknowledged_mails_max = count(value);
    }),
    ("live_receivers_max", |config, value| {
        config.live_receivers_max = count(value);
    }),
    ("watch_changes_max", |config, value| {
        config.watch_changes_max = count(value);
    }),
    ("call_timeout_max_s", |config, value| {
        config.call_timeout_max = seconds(value);
    }),
    ("lease_s", |config, value| config.lease = seconds(value)),
    ("mail_ttl_s", |config, value| {
        config.mail_ttl = seconds(value);
    }),
];

fn count(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn seconds(value: u32) -> Duration {
    Duration::from_secs(value.into())
}

fn parse(text: &str, config: &HubConfig) -> Result<HubConfig, (u32, Fault)> {
    if text.len() > FILE_BYTES_MAX {
        return Err((1, Fault::TooLong));
    }
    let mut config = config.clone();
    let mut names: Vec<&str> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.split_once('#').map_or(line, |(content, _)| content);
        if content.trim().is_empty() {
            continue;
        }
        let mut words = content.split_whitespace();
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err((number, Fault::Form));
        };
        if names.contains(&name) {
            return Err((number, Fault::Twice(name.to_owned())));
        }
        names.push(name);
        set(&mut config, name, value).map_err(|fault| (number, fault))?;
    }
    Ok(config)
}

fn set(config: &mut HubConfig, name: &str, value: &str) -> Result<(), Fault> {
    let fault = |expected| Fault::Value(value.to_owned(), expected);
    if name == "duplicate_claim" {
        config.duplicate_claim = match value {
            "newest-wins" => DuplicateClaim::NewestWins,
            "refuse" => DuplicateClaim::Refuse,
            _ => return Err(fault("newest-wins or refuse")),
        };
        return Ok(());
    }
    if name == "kick_roles" {
        let roles = value.split(',').map(Role::from_str);
        let roles: Result<Vec<Role>, _> = roles.collect();
        config.kick_roles = roles.map_err(|_| fault("roles of a join file, with commas"))?;
        return Ok(());
    }
    let found = NUMBERS.iter().find(|(known, _)| *known == name);
    let (_, set) = found.ok_or_else(|| Fault::Name(name.to_owned()))?;
    let number: Option<u32> = value.parse().ok();
    let number = number.filter(|number| *number > 0);
    set(
        config,
        number.ok_or_else(|| fault("a whole number from 1"))?,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_file_replace_defaults_and_others_stay() {
        let text = "# a hub\nnode_players_max 7 # few\n\nlease_s 30\nduplicate_claim refuse\n\
                    kick_roles admin,game-node\n";
        let config = parse(text, &HubConfig::default()).unwrap();
        assert_eq!(
            (config.node_players_max, config.lease),
            (7, Duration::from_secs(30))
        );
        assert_eq!(config.duplicate_claim, DuplicateClaim::Refuse);
        assert_eq!(config.kick_roles, [Role::Admin, Role::GameNode]);
        assert_eq!(config.links_max, HubConfig::default().links_max);
        for (name, _) in NUMBERS {
            let changed = parse(&format!("{name} 3"), &HubConfig::default()).unwrap();
            assert_ne!(changed, HubConfig::default(), "{name}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_what_was_found_and_expected() {
        for (line, part) in [
            ("lease_s", "expected NAME VALUE"),
            ("lease_s 1 2", "expected NAME VALUE"),
            (
                "lease 30",
                "found the limit \"lease\", expected one of links_max",
            ),
            ("links_max 5", "an earlier line has links_max"),
            ("lease_s 0", "found \"0\", expected a whole number from 1"),
            ("lease_s -1", "found \"-1\""),
            ("duplicate_claim both", "expected newest-wins or refuse"),
            ("kick_roles owner", "expected roles"),
        ] {
            let text = format!("links_max 4\n{line}\n");
            let (number, fault) = parse(&text, &HubConfig::default()).unwrap_err();
            assert_eq!(number, 2, "{line}");
            assert!(fault.to_string().contains(part), "{line}: {fault}");
        }
        let long = "#".repeat(FILE_BYTES_MAX + 1);
        assert_eq!(
            parse(&long, &HubConfig::default()),
            Err((1, Fault::TooLong))
        );
    }
}
