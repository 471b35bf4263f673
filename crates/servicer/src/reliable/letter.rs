//! Records between a reliable server and its clients.
//!
//! | byte 0 | from | the rest |
//! |---|---|---|
//! | 0, join | client | version, 1; then the application's bytes, such as name and credentials |
//! | 1, accepted | server | the application's bytes, such as where the game is |
//! | 2, refused | server | the application's reason |
//! | 3, message | both | the application's bytes |
//! | 4, closing | server | one byte of reason, then the application's text |
//!
//! A client's first record is a join. It sends nothing more until it is accepted.

/// Version of this table, sent in the join record.
const VERSION: u8 = 1;

/// Header length of a message, a welcome and a refusal, bytes.
pub(super) const MESSAGE_HEAD: usize = 1;

/// Longest header, that of a join and of a closing record, bytes.
pub(super) const LETTER_HEAD: usize = 2;

/// Maximum length of a reason, bytes, sent or received. Longer ones are truncated.
pub(super) const REASON_BYTES_MAX: usize = 1_024;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letter<'a> {
    Join(&'a [u8]),
    Accepted(&'a [u8]),
    Refused(&'a [u8]),
    Message(&'a [u8]),
    Closing(Closing, &'a [u8]),
}

/// Why a server closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    ShutDown,
    Slow,
    Dismissed,
}

impl<'a> Letter<'a> {
    /// Decodes a record; `None` if it is malformed.
    pub(super) fn decode(record: &'a [u8]) -> Option<Self> {
        let (kind, rest) = record.split_first()?;
        Some(match (kind, rest) {
            (0, [VERSION, rest @ ..]) => Self::Join(rest),
            (1, rest) => Self::Accepted(rest),
            (2, rest) => Self::Refused(rest),
            (3, rest) => Self::Message(rest),
            (4, [code, words @ ..]) => Self::Closing(Closing::of(*code)?, words),
            _ => return None,
        })
    }

    /// Appends the record to `buf`.
    pub(super) fn encode(self, buf: &mut Vec<u8>) {
        let (head, rest): (&[u8], _) = match self {
            Self::Join(rest) => (&[0, VERSION], rest),
            Self::Accepted(rest) => (&[1], rest),
            Self::Refused(rest) => (&[2], cut(rest)),
            Self::Message(rest) => (&[3], rest),
            Self::Closing(Closing::ShutDown, words) => (&[4, 0], cut(words)),
            Self::Closing(Closing::Slow, words) => (&[4, 1], cut(words)),
            Self::Closing(Closing::Dismissed, words) => (&[4, 2], cut(words)),
        };
        buf.extend_from_slice(head);
        buf.extend_from_slice(rest);
    }
}

impl Closing {
    const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::ShutDown),
            1 => Some(Self::Slow),
            2 => Some(Self::Dismissed),
            _ => None,
        }
    }
}

/// Truncates a reason to its maximum length.
fn cut(words: &[u8]) -> &[u8] {
    words.get(..REASON_BYTES_MAX).unwrap_or(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for letter in [
            Letter::Join(b"ann"),
            Letter::Accepted(b""),
            Letter::Refused(b"full"),
            Letter::Message(b"\0\x01"),
            Letter::Closing(Closing::ShutDown, b"bye"),
            Letter::Closing(Closing::Slow, b""),
            Letter::Closing(Closing::Dismissed, b"rude"),
        ] {
            let mut record = Vec::new();
            letter.encode(&mut record);
            assert_eq!(Letter::decode(&record), Some(letter));
        }
    }

    #[test]
    fn what_is_no_letter_is_none() {
        for record in [&[][..], &[0], &[0, 2, 7], &[4], &[4, 3], &[5], &[255, 1]] {
            assert_eq!(Letter::decode(record), None, "{record:?}");
        }
    }

    #[test]
    fn a_reason_is_cut() {
        let long = [7; REASON_BYTES_MAX + 1];
        for letter in [
            Letter::Refused(&long),
            Letter::Closing(Closing::Slow, &long),
        ] {
            let mut record = Vec::new();
            letter.encode(&mut record);
            assert!(record.len() <= REASON_BYTES_MAX + LETTER_HEAD);
        }
    }
}
