//! What is counted.

use core::fmt;

use wire::{Reader, Writer};

use crate::name::Name;
use crate::record::DecodeError;

/// What is counted: a name, and up to 8 dimensions that tell apart what it counts.
///
/// On the wire: the name, one byte with the number of dimensions, then each dimension's name and
/// value, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    /// What happened.
    name: Name,
    /// Sorted, no name twice.
    dimensions: Vec<(Name, Name)>,
}

impl CountKey {
    /// Dimensions that a key may have.
    pub const DIMENSIONS_MAX: usize = 8;

    /// Makes a key; the order of `dimensions` does not matter.
    ///
    /// # Errors
    ///
    /// [`CountKeyError`] where there are more than 8, or two of one name.
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
    /// The key without dimensions.
    fn from(name: Name) -> Self {
        Self {
            name,
            dimensions: Vec::new(),
        }
    }
}

/// Why dimensions make no [`CountKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountKeyError {
    /// There are this many, where 8 are allowed.
    TooMany(usize),
    /// Two have one name.
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
