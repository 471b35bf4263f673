//! Keys of counters.

use core::fmt;

use wire::{Reader, Writer};

use crate::name::Name;
use crate::record::DecodeError;

/// Key of a counter: a name and up to 8 dimensions.
///
/// Encoding: the name, one byte with the number of dimensions, then each dimension's name and
/// value, ordered by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    name: Name,
    /// Sorted, names unique.
    dimensions: Vec<(Name, Name)>,
}

impl CountKey {
    /// Largest number of dimensions.
    pub const DIMENSIONS_MAX: usize = 8;

    /// Creates a key; the order of `dimensions` does not matter.
    ///
    /// # Errors
    ///
    /// [`CountKeyError`] if there are more than 8, or two have the same name.
    pub fn new(name: Name, dimensions: &[(Name, Name)]) -> Result<Self, CountKeyError> {
        if dimensions.len() > Self::DIMENSIONS_MAX {
            return Err(CountKeyError::TooMany(dimensions.len()));
        }
        let mut dimensions = dimensions.to_vec();
        dimensions.sort_unstable();
        if !is_ordered(&dimensions) {
            return Err(CountKeyError::Repeated);
        }
        Ok(Self { name, dimensions })
    }

    /// Returns what happened.
    pub const fn name(&self) -> Name {
        self.name
    }

    /// Returns the dimensions, sorted by name.
    pub fn dimensions(&self) -> &[(Name, Name)] {
        &self.dimensions
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        self.name.encode(out);
        out.u8(u8::try_from(self.dimensions.len()).unwrap_or(u8::MAX));
        for (name, value) in &self.dimensions {
            name.encode(out);
            value.encode(out);
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = Name::decode(reader)?;
        let count = usize::from(reader.u8()?);
        if count > Self::DIMENSIONS_MAX {
            return Err(DecodeError::Count);
        }
        let mut dimensions = Vec::with_capacity(count);
        for _ in 0..count {
            dimensions.push((Name::decode(reader)?, Name::decode(reader)?));
        }
        if is_ordered(&dimensions) {
            Ok(Self { name, dimensions })
        } else {
            Err(DecodeError::Count)
        }
    }
}

impl From<Name> for CountKey {
    /// Creates a key without dimensions.
    fn from(name: Name) -> Self {
        Self {
            name,
            dimensions: Vec::new(),
        }
    }
}

/// Why a [`CountKey`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountKeyError {
    /// This many dimensions; 8 are allowed.
    TooMany(usize),
    /// Two dimensions have the same name.
    Repeated,
}

impl fmt::Display for CountKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(count) => write!(f, "{count} dimensions where 8 are allowed"),
            Self::Repeated => f.write_str("two dimensions of one name"),
        }
    }
}

impl core::error::Error for CountKeyError {}

fn is_ordered(dimensions: &[(Name, Name)]) -> bool {
    dimensions
        .windows(2)
        .all(|pair| matches!(pair, [(before, _), (after, _)] if before < after))
}
