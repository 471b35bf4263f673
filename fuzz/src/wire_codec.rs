//! The reader and writer of `wire`.

use wire::{Reader, Truncated, Writer};

/// Reads the bytes after the first zero as the script before it says, and compares with a model
/// which only counts. Then encodes the result and compares.
pub fn reader(data: &[u8]) {
    let split = data.iter().position(|byte| *byte == 0);
    let (script, body) = match split.and_then(|at| data.split_at_checked(at)) {
        Some((script, body)) => (script, body),
        None => (data, &[][..]),
    };
    let mut reader = Reader::new(body);
    let mut written = Vec::new();
    let mut taken = 0;
    for op in script {
        let before = reader.rest();
        let mut writer = Writer::new(&mut written);
        let result = step(*op, &mut reader, &mut writer);
        match result {
            Ok(len) => {
                assert!(len <= before.len(), "more was read than was there");
                taken += len;
            }
            Err(Truncated) => assert_eq!(reader.rest(), before, "a failed read took something"),
        }
        assert_eq!(reader.len(), body.len() - taken, "the count is off");
        assert_eq!(
            Some(written.as_slice()),
            body.get(..taken),
            "other bytes were read"
        );
    }
    let rest = reader.take_rest();
    assert_eq!(Some(rest), body.get(taken..));
    assert!(reader.is_empty());
}

/// Reads one field, writes it again, and returns its length.
fn step(op: u8, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> Result<usize, Truncated> {
    match op % 6 {
        0 => reader.u8().map(|value| {
            writer.u8(value);
            1
        }),
        1 => reader.u16().map(|value| {
            writer.u16(value);
            2
        }),
        2 => reader.u32().map(|value| {
            writer.u32(value);
            4
        }),
        3 => reader.u64().map(|value| {
            writer.u64(value);
            8
        }),
        4 => reader.array::<7>().map(|value| {
            writer.bytes(&value);
            7
        }),
        _ => {
            let len = usize::from(op / 6);
            reader.bytes(len).map(|bytes| {
                writer.bytes(bytes);
                len
            })
        }
    }
}
