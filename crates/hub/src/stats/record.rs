//! Records: what was measured, when, for which player.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use wire::{ClientId, UnixTime};

use super::number::Number;
use crate::field::Name;

/// Value of a dimension, or a state: 1 to 64 bytes of UTF-8 without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatText(Arc<str>);

impl StatText {
    /// Longest text, bytes.
    pub const LEN_MAX: usize = 64;

    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// [`StatTextError`] if the length or a character is invalid.
    pub fn new(text: &str) -> Result<Self, StatTextError> {
        if text.is_empty() || text.len() > Self::LEN_MAX {
            return Err(StatTextError::Length(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(StatTextError::Control);
        }
        Ok(Self(text.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StatText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StatText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for StatText {
    type Err = StatTextError;

    fn from_str(text: &str) -> Result<Self, StatTextError> {
        Self::new(text)
    }
}

/// Why a text is not a [`StatText`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatTextError {
    /// Its length in bytes; 1 to 64 are allowed.
    Length(usize),
    /// It holds a control character.
    Control,
}

impl fmt::Display for StatTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "text has {len} bytes where 1 to 64 are allowed"),
            Self::Control => f.write_str("text holds a control character"),
        }
    }
}

impl core::error::Error for StatTextError {}

/// Key of a series: a name, and up to 8 dimensions with their values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatKey {
    name: Name,
    /// Sorted, names unique.
    dimensions: Vec<(Name, StatText)>,
}

impl StatKey {
    /// Largest number of dimensions.
    pub const DIMENSIONS_MAX: usize = 8;

    /// Creates a key; the order of `dimensions` does not matter.
    ///
    /// # Errors
    ///
    /// [`StatKeyError`] if there are more than 8, or two have the same name.
    pub fn new(name: Name, mut dimensions: Vec<(Name, StatText)>) -> Result<Self, StatKeyError> {
        if dimensions.len() > Self::DIMENSIONS_MAX {
            return Err(StatKeyError::TooMany(dimensions.len()));
        }
        dimensions.sort_unstable();
        Self::from_sorted(name, dimensions).ok_or(StatKeyError::Repeated)
    }

    /// Returns `None` if the names do not increase.
    pub(super) fn from_sorted(name: Name, dimensions: Vec<(Name, StatText)>) -> Option<Self> {
        let is_ordered = dimensions.is_sorted_by(|(before, _), (after, _)| before < after);
        is_ordered.then_some(Self { name, dimensions })
    }

    /// Returns what is measured.
    pub const fn name(&self) -> Name {
        self.name
    }

    /// Returns the dimensions, sorted by name.
    pub fn dimensions(&self) -> &[(Name, StatText)] {
        &self.dimensions
    }

    /// Returns the value of a dimension.
    pub fn dimension(&self, name: Name) -> Option<&StatText> {
        let found = self.dimensions.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| text)
    }

    /// Returns the memory of a key on the heap, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let entry = size_of::<(Name, StatText)>().saturating_add(16);
        let texts = self.dimensions.iter().map(|(_, text)| text.0.len());
        let texts: usize = texts.sum();
        entry
            .saturating_mul(self.dimensions.len())
            .saturating_add(texts)
    }
}

impl From<Name> for StatKey {
    fn from(name: Name) -> Self {
        Self {
            name,
            dimensions: Vec::new(),
        }
    }
}

/// Why a [`StatKey`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatKeyError {
    /// This many dimensions; 8 are allowed.
    TooMany(usize),
    /// Two dimensions have the same name.
    Repeated,
}

impl fmt::Display for StatKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(count) => write!(f, "{count} dimensions where 8 are allowed"),
            Self::Repeated => f.write_str("two dimensions have the same name"),
        }
    }
}

impl core::error::Error for StatKeyError {}

/// Kind and value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Increase of a counter.
    Add(Number),
    /// New value of a gauge.
    Set(Number),
    /// New state.
    State(StatText),
    /// An event with a value, for example a duration.
    Event(Number),
}

impl Sample {
    /// Returns the number; a state has none.
    pub const fn number(&self) -> Option<Number> {
        match self {
            Self::Add(number) | Self::Set(number) | Self::Event(number) => Some(*number),
            Self::State(_) => None,
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatRecord {
    /// When it was taken, by the node's clock.
    pub time: UnixTime,
    /// The player that it is about; counted in the unique players of its series.
    pub player: Option<ClientId>,
    /// The series.
    pub key: StatKey,
    /// Kind and value.
    pub sample: Sample,
}
