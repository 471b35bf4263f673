//! The record that starts an entry's stream.

use relay_mesh::tunnel::{OpenReader, OpenRecord};

/// Reads a stream in pieces. The first byte is their length.
///
/// The result does not depend on the pieces. An accepted record has one encoding, and no byte after
/// it is consumed.
pub fn stream(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else {
        return;
    };
    let whole = read(bytes, usize::MAX);
    let cut = read(bytes, usize::from(*piece).max(1));
    assert_eq!(whole, cut, "pieces of {piece} bytes say another thing");
    if let Some((record, taken)) = whole {
        assert!(taken <= OpenRecord::LEN_MAX);
        let mut again = Vec::new();
        record.encode(&mut again);
        let taken = bytes.get(..taken);
        assert_eq!(taken, Some(&again[..]), "two ways to write {record:?}");
    }
}

/// Returns the record and its length, or `None` if it is incomplete or invalid.
fn read(bytes: &[u8], piece: usize) -> Option<(OpenRecord, usize)> {
    let mut reader = OpenReader::default();
    let mut taken: usize = 0;
    loop {
        let rest = bytes.get(taken..).unwrap_or_default();
        let wanted = reader.wants().min(piece).min(rest.len());
        assert!(reader.wants() > 0, "a record that is whole was not told");
        let next = rest.get(..wanted).filter(|next| !next.is_empty())?;
        taken = taken.saturating_add(wanted);
        assert!(taken <= OpenRecord::LEN_MAX);
        match reader.take(next) {
            Ok(None) => {}
            Ok(Some(record)) => return Some((record, taken)),
            Err(_) => return None,
        }
    }
}
