//! Versions of programs and packages.

use std::fmt;

/// Major, minor and patch number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) [u32; 3]);

impl Version {
    /// Finds the first version in the output of a program: at least two numbers with a dot between.
    pub(super) fn find(text: &str) -> Option<Self> {
        let is_part = |char: char| char.is_ascii_digit() || char == '.';
        text.split(|char| !is_part(char)).find_map(Self::parse)
    }

    /// Parses the version of a Debian package, `5:7.0.15-1~deb12u6`.
    pub(super) fn of_package(text: &str) -> Option<Self> {
        let upstream = text.split_once(':').map_or(text, |(_epoch, rest)| rest);
        Self::find(upstream)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let patch = parts.next().and_then(|part| part.parse().ok());
        Some(Self([major, minor, patch.unwrap_or(0)]))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        let found = |text| Version::find(text).map(|it| it.0);
        assert_eq!(found("nats-server: v2.10.27\n"), Some([2, 10, 27]));
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(found(redis), Some([7, 0, 15]));
        assert_eq!(found("tool 3.1-beta"), Some([3, 1, 0]));
        assert_eq!(found("nats-server: v2.11.0-RC.1"), Some([2, 11, 0]));
        assert_eq!(found("version 7, of 2.x and 99999999999.1"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn versions_of_packages_have_an_epoch_and_a_revision() {
        let of = |text| Version::of_package(text).map(|it| it.0);
        assert_eq!(of("2.9.10-1+b3"), Some([2, 9, 10]));
        assert_eq!(of("5:7.0.15-1~deb12u6"), Some([7, 0, 15]));
        assert_eq!(of("(none)"), None);
    }

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(Version([2, 9, 10]) < Version([2, 10, 0]));
        assert!(Version([2, 10, 0]) < Version([3, 0, 0]));
        assert_eq!(Version([2, 10, 27]).to_string(), "2.10.27");
    }
}
