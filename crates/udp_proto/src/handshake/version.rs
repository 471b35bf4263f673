//! Versions of the protocol, and which of them an endpoint speaks.

/// The first version, and the only one with a layout of its own.
pub const VERSION_1: u32 = 0x5457_0001;
/// Laid out as version 1 and spoken by nobody who is not told to: so that the choice of a version is
/// made, and tested, before there are two. RFC 9000, section 15, reserves versions for the same.
pub const VERSION_TRIAL: u32 = 0x5457_0A0A;

/// Versions that an endpoint speaks; version 1 is always among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpokenVersions {
    /// Version 1.
    #[default]
    One,
    /// Version 1 and the trial version, which counts as the higher one.
    WithTrial,
}

impl SpokenVersions {
    /// Returns the versions, lowest first.
    #[must_use]
    pub const fn as_slice(self) -> &'static [u32] {
        match self {
            Self::One => &[VERSION_1],
            Self::WithTrial => &[VERSION_1, VERSION_TRIAL],
        }
    }

    /// Returns the highest one.
    #[must_use]
    pub const fn best(self) -> u32 {
        match self {
            Self::One => VERSION_1,
            Self::WithTrial => VERSION_TRIAL,
        }
    }

    /// Returns whether `version` is among them.
    #[must_use]
    pub fn contains(self, version: u32) -> bool {
        self.as_slice().contains(&version)
    }
}

/// Returns whether `version` has a layout that is read here.
pub(crate) const fn is_known(version: u32) -> bool {
    matches!(version, VERSION_1 | VERSION_TRIAL)
}
