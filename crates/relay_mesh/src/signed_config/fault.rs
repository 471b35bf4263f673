//! Errors in a document, with their location.

use core::fmt;

use crate::config_text::TextError;

/// Why bytes are not a valid document; displayed as one sentence for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is longer than [`DOCUMENT_LEN_MAX`](super::DOCUMENT_LEN_MAX).
    TooLong {
        /// Its length in bytes.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// It is not JSON of the required form; the error names line and field.
    Json(TextError),
    /// A value breaks a rule.
    At {
        /// The value.
        place: Place,
        /// The rule.
        fault: Fault,
    },
}

/// Location of a value in a document, such as `games[3].entry.nodes[17]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The member of the document.
    pub field: &'static str,
    /// Index of its item, from 0.
    pub index: Option<usize>,
    /// The item's member.
    pub part: Option<&'static str>,
    /// Index of that member's item, from 0.
    pub part_index: Option<usize>,
}

/// A rule that a value breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A required value is missing or empty.
    Empty,
    /// More items or bytes than allowed.
    OverLimit {
        /// The number found.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A number outside its range.
    OutOfRange {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A name with characters other than `A-Z a-z 0-9 . _ -`.
    BadName,
    /// A duplicate.
    Twice,
    /// Not a node id of 64 hexadecimal digits.
    BadNodeId,
    /// Not a P-256 public key, as 130 hexadecimal digits or PEM.
    BadKey,
    /// Not an IP address and port, or one that no host can have.
    BadAddress,
    /// A list of type `all` that names nodes.
    NodesInAll,
    /// Not allowed with this game's protocol.
    WrongProtocol,
}

impl Place {
    /// A member of the document.
    pub(super) const fn of(field: &'static str) -> Self {
        Self {
            field,
            index: None,
            part: None,
            part_index: None,
        }
    }

    /// An item of a list.
    pub(super) const fn item(field: &'static str, index: usize) -> Self {
        Self {
            index: Some(index),
            ..Self::of(field)
        }
    }

    /// A member of this item.
    pub(super) const fn part(self, part: &'static str) -> Self {
        Self {
            part: Some(part),
            ..self
        }
    }

    /// An item of this member.
    pub(super) const fn part_item(self, index: usize) -> Self {
        Self {
            part_index: Some(index),
            ..self
        }
    }

    /// Returns the error at this place.
    pub(super) const fn fault(self, fault: Fault) -> DocumentError {
        DocumentError::At { place: self, fault }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field)?;
        if let Some(index) = self.index {
            write!(f, "[{index}]")?;
        }
        if let Some(part) = self.part {
            write!(f, ".{part}")?;
        }
        if let Some(index) = self.part_index {
            write!(f, "[{index}]")?;
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::OverLimit { found, max } => write!(f, "has {found}, over the limit of {max}"),
            Self::OutOfRange { min, max } => write!(f, "is not within {min} to {max}"),
            Self::BadName => f.write_str("holds something else than A-Z a-z 0-9 . _ -"),
            Self::Twice => f.write_str("stands there twice"),
            Self::BadNodeId => f.write_str("is no node id of 64 hexadecimal digits"),
            Self::BadKey => f.write_str("is no public key of P-256, in hexadecimal or PEM"),
            Self::BadAddress => f.write_str("is no address that can be reached"),
            Self::NodesInAll => f.write_str("names nodes, and its type is \"all\""),
            Self::WrongProtocol => f.write_str("does not go with the protocol of the game"),
        }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { found, max } => {
                write!(f, "document has {found} bytes, over the limit of {max}")
            }
            Self::Json(error) => error.fmt(f),
            Self::At { place, fault } => write!(f, "{place} {fault}"),
        }
    }
}

impl core::error::Error for DocumentError {}
