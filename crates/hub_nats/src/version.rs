//! Versions of servers.

use core::fmt;

/// Version of a server: major, minor and patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u32; 3]);

/// Least version: earlier ones answer requests for buckets in a form that the client does not read.
pub(crate) const NEEDED: Version = Version([2, 10, 0]);

impl Version {
    /// Parses `2.10.27` or `2.11.0-RC.1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let core = text.trim_start_matches('v').split(['-', '+']).next()?;
        let mut parts = core.split('.');
        let mut next = || parts.next()?.parse().ok();
        Some(Self([next()?, next()?, next().unwrap_or(0)]))
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
    fn versions_are_parsed_and_ordered() {
        let of = |text| Version::parse(text).map(|it| it.0);
        assert_eq!(of("2.10.27"), Some([2, 10, 27]));
        assert_eq!(of("v2.11.0-RC.1"), Some([2, 11, 0]));
        assert_eq!(of("2.12"), Some([2, 12, 0]));
        assert_eq!(of("devel"), None);
        assert_eq!(of(""), None);
        assert!(Version([2, 9, 10]) < NEEDED && NEEDED <= Version([2, 10, 0]));
    }
}
