//! Fields of datagrams and records: big-endian, and every read checks the length.

use alloc::vec::Vec;

/// Reads fields from the front of a slice.
///
/// A failed read consumes nothing. A read costs one copy and allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the first byte of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads one byte.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if no byte is left.
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        self.array().map(|[byte]| byte)
    }

    /// Reads 2 bytes as a number.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if fewer bytes are left.
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads 4 bytes as a number.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if fewer bytes are left.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads 8 bytes as a number.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if fewer bytes are left.
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads `LEN` bytes.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if fewer bytes are left.
    pub fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], Truncated> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Reads `len` bytes without a copy.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if fewer bytes are left.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads all remaining bytes.
    pub const fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// Checks that no bytes remain.
    ///
    /// # Errors
    ///
    /// What `trailing` makes of the number of remaining bytes.
    pub fn finish<E>(&self, trailing: impl FnOnce(usize) -> E) -> Result<(), E> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(trailing(self.rest.len()))
        }
    }

    /// Returns the remaining bytes and does not consume them.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns how many bytes remain.
    pub const fn len(&self) -> usize {
        self.rest.len()
    }

    /// Returns whether no bytes remain.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Fewer bytes remain than the field needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated;

crate::error_text! { Truncated {
    Self => "fewer bytes than the field needs",
}}

/// A field with a fixed encoding.
pub trait Encode {
    /// Appends the field.
    fn encode(&self, out: &mut Writer<'_>);
}

/// Implements [`Encode`] for numbers.
macro_rules! encode_numbers {
    ($($number:ty)*) => { $(
        impl Encode for $number {
            fn encode(&self, out: &mut Writer<'_>) {
                out.bytes(&self.to_be_bytes());
            }
        }
    )* };
}

encode_numbers! { u8 u16 u32 u64 }

impl Encode for [u8] {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self);
    }
}

impl<const LEN: usize> Encode for [u8; LEN] {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self);
    }
}

/// Appends fields to a vector.
///
/// It does not limit lengths: a protocol with a limit checks it before it writes.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends after the bytes that `out` already holds.
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    /// Appends 2 bytes.
    pub fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends 4 bytes.
    pub fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends 8 bytes.
    pub fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends `fields` in this order.
    pub fn fields(&mut self, fields: &[&dyn Encode]) {
        for field in fields {
            field.encode(self);
        }
    }

    /// Appends `bytes`.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends `len` zero bytes.
    pub fn zeros(&mut self, len: usize) {
        let end = self.out.len().saturating_add(len);
        self.out.resize(end, 0);
    }

    /// Appends the number of `items` in 2 bytes, then each item with `write`. The caller bounds the
    /// number to 65,535.
    pub fn list<T>(&mut self, items: impl Iterator<Item = T>, write: impl Fn(&mut Self, T)) {
        let start = self.out.len();
        let mut count = 0_u16;
        self.u16(count);
        for item in items {
            write(self, item);
            count = count.saturating_add(1);
        }
        let field = self.out.get_mut(start..).and_then(<[u8]>::first_chunk_mut);
        if let Some(field) = field {
            *field = count.to_be_bytes();
        }
    }

    /// Returns the length of the vector, including the bytes that it held before.
    pub const fn position(&self) -> usize {
        self.out.len()
    }
}

/// Returns the concatenated `parts`, cut or filled with zeros to `LEN` bytes.
#[must_use]
pub fn concat<const LEN: usize>(parts: &[&[u8]]) -> [u8; LEN] {
    let mut out = [0; LEN];
    for (to, from) in out.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn a_failed_read_consumes_nothing() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u32(), Err(Truncated));
        assert_eq!(reader.bytes(4), Err(Truncated));
        assert_eq!(reader.u16(), Ok(0x0102));
        assert_eq!(reader.rest(), &[3]);
        assert_eq!(reader.take_rest(), &[3]);
        assert!(reader.is_empty());
        assert_eq!(reader.u8(), Err(Truncated));
    }

    #[test]
    fn numbers_are_big_endian() {
        let mut out = vec![9];
        let mut writer = Writer::new(&mut out);
        writer.u16(0x0102);
        writer.zeros(2);
        assert_eq!(writer.position(), 5);
        assert_eq!(out, [9, 1, 2, 0, 0]);
    }

    #[test]
    fn a_list_is_prefixed_with_its_count() {
        let mut out = vec![9];
        Writer::new(&mut out).list([1_u16, 2].into_iter(), Writer::u16);
        assert_eq!(out, [9, 0, 2, 0, 1, 0, 2]);
        let mut reader = Reader::new(&out);
        assert_eq!(reader.finish(|left| left), Err(7));
        reader.take_rest();
        assert_eq!(reader.finish(|left| left), Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(a: u8, b: u16, c: u32, d: u64, e: [u8; 7], f: Vec<u8>) {
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out);
            writer.u8(a);
            writer.u16(b);
            writer.u32(c);
            writer.u64(d);
            writer.bytes(&e);
            writer.bytes(&f);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.u8(), Ok(a));
            prop_assert_eq!(reader.u16(), Ok(b));
            prop_assert_eq!(reader.u32(), Ok(c));
            prop_assert_eq!(reader.u64(), Ok(d));
            prop_assert_eq!(reader.array(), Ok(e));
            prop_assert_eq!(reader.bytes(f.len()), Ok(f.as_slice()));
            prop_assert!(reader.is_empty());
        }
    }
}
