//! The record framing of the TCP drivers.

// Includes the servicer's private module, so its own tests also run here.
#[path = "../../crates/servicer/src/tcp/record.rs"]
mod record;

use record::{HEADER_LEN, RecordReader, RecordWriter};

/// The shorter of the two maximum record lengths.
const SHORT: usize = 40;

/// Reads a stream in pieces: two bytes for the piece length and the maximum record length, then the
/// bytes.
///
/// However the stream is cut, the reader finds the same records up to the first that is too long.
/// The records encode to the same stream. The reader holds only the start of one record.
pub fn stream(data: &[u8]) {
    let Some(([piece, limit], bytes)) = data.split_first_chunk() else {
        return;
    };
    let len_max = if limit % 2 == 0 {
        SHORT
    } else {
        usize::from(*limit) << 16
    };
    let (whole, whole_ends) = read(bytes, usize::MAX, len_max);
    let (found, ends) = read(bytes, usize::from(*piece) + 1, len_max);
    assert_eq!((&found, ends), (&whole, whole_ends), "cut each {piece}");
    let mut writer = RecordWriter::default();
    for record in &found {
        assert!(record.len() <= len_max);
        writer.push(record).expect("it was read");
    }
    assert!(bytes.starts_with(writer.waiting()));
    let total = writer.waiting().len();
    let left = bytes.len() - total;
    if ends == Ends::AtTheEnd {
        assert_eq!(left, 0, "all of it is records");
    }
    let records: usize = found.iter().map(Vec::len).sum();
    assert_eq!(writer.advance(total), records);
    assert!(writer.waiting().is_empty());
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// After a complete record.
    AtTheEnd,
    /// Inside a record.
    Within,
    /// With a record that is too long.
    TooLong,
}

fn read(bytes: &[u8], piece: usize, len_max: usize) -> (Vec<Vec<u8>>, Ends) {
    // Until the first record, the limit is the one before a connection is admitted.
    let mut reader = RecordReader::new(SHORT.min(len_max));
    let mut found: Vec<Vec<u8>> = Vec::new();
    for mut piece in bytes.chunks(piece.min(bytes.len().max(1))) {
        while !piece.is_empty() {
            let before = piece.len();
            match reader.next(&mut piece) {
                Ok(Some(record)) => found.push(record.to_vec()),
                Ok(None) => assert!(piece.is_empty(), "it took all there was"),
                Err(record::TooLong) => return (found, Ends::TooLong),
            }
            assert!(piece.len() < before, "it spins");
            if found.len() == 1 {
                reader.set_len_max(len_max);
            }
        }
    }
    let taken: usize = found.iter().map(|record| record.len() + HEADER_LEN).sum();
    assert_eq!(reader.is_partial(), taken < bytes.len());
    let ends = if reader.is_partial() {
        Ends::Within
    } else {
        Ends::AtTheEnd
    };
    (found, ends)
}
