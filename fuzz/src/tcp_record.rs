//! The framer of TCP servicers.

// As it is in the servicer, where it is private: its own tests run here once more.
#[path = "../../crates/servicer/src/tcp/record.rs"]
mod record;

use record::{HEADER_LEN, RecordReader, RecordWriter};

/// Longest record that is taken, where it is the shorter one.
const SHORT: usize = 40;

/// Reads a stream that comes in pieces: two bytes for how long the pieces and the records may be,
/// then the bytes.
///
/// However it is cut, the same records are found up to the first that is too long; they are the
/// stream again when they are written; and nothing is held but the start of one record.
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

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// With a record.
    AtTheEnd,
    /// Within one.
    Within,
    /// With one that is too long.
    TooLong,
}

fn read(bytes: &[u8], piece: usize, len_max: usize) -> (Vec<Vec<u8>>, Ends) {
    // A stranger's limit, until the first record: as before a connection is let in.
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
