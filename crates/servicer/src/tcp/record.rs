//! Record framing: a 4-byte big-endian length, then that many bytes.
//!
//! Hub, lobby and game servers share this framing. The connection's limit bounds a length, not the
//! width of the field.

use std::collections::VecDeque;
use std::mem;

pub(super) const HEADER_LEN: usize = 4;

/// Parses records from received bytes.
///
/// It allocates only for bytes that have arrived, never for an announced length.
#[derive(Debug)]
pub(super) struct RecordReader {
    /// Maximum record length, bytes.
    len_max: usize,
    /// The start of an incomplete record, header included, or the whole record that was returned
    /// last.
    partial: Vec<u8>,
    is_spent: bool,
}

impl RecordReader {
    pub(super) const fn new(len_max: usize) -> Self {
        Self {
            len_max,
            partial: Vec::new(),
            is_spent: false,
        }
    }

    /// Changes the maximum record length, from the next record on.
    pub(super) const fn set_len_max(&mut self, len_max: usize) {
        self.len_max = len_max;
    }

    /// Takes the next record, or the part of it that has arrived, from the front of `bytes`. After
    /// [`TooLong`] the stream cannot be parsed further.
    pub(super) fn next<'a, 'b: 'a>(
        &'a mut self,
        bytes: &mut &'b [u8],
    ) -> Result<Option<&'a [u8]>, TooLong> {
        if mem::take(&mut self.is_spent) {
            self.partial.clear();
        }
        if self.partial.is_empty()
            && let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>()
        {
            let len = self.check(*header)?;
            if let Some((record, rest)) = rest.split_at_checked(len) {
                *bytes = rest;
                return Ok(Some(record));
            }
        }
        self.fill(HEADER_LEN, bytes);
        let Some(header) = self.partial.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = self.check(*header)?;
        self.fill(HEADER_LEN.saturating_add(len), bytes);
        let record = self.partial.get(HEADER_LEN..).unwrap_or_default();
        if record.len() < len {
            return Ok(None);
        }
        self.is_spent = true;
        Ok(Some(record))
    }

    pub(super) const fn is_partial(&self) -> bool {
        !self.is_spent && !self.partial.is_empty()
    }

    fn check(&self, header: [u8; HEADER_LEN]) -> Result<usize, TooLong> {
        usize::try_from(u32::from_be_bytes(header))
            .ok()
            .filter(|len| *len <= self.len_max)
            .ok_or(TooLong)
    }

    fn fill(&mut self, len: usize, bytes: &mut &[u8]) {
        let missing = len.saturating_sub(self.partial.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at(missing);
        self.partial.extend_from_slice(taken);
        *bytes = rest;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Buffers records until they are written, and tracks which ones are.
#[derive(Debug, Default)]
pub(super) struct RecordWriter {
    /// Records with their headers. Those before `start` are written.
    bytes: Vec<u8>,
    start: usize,
    /// Length of each record that is not completely written.
    lens: VecDeque<usize>,
    /// Bytes written of the first of them, header included.
    begun: usize,
}

impl RecordWriter {
    /// Adds a record, unless its length does not fit into four bytes.
    pub(super) fn push(&mut self, record: &[u8]) -> Result<(), TooLong> {
        let header = u32::try_from(record.len()).map_err(|_| TooLong)?;
        let need = HEADER_LEN.saturating_add(record.len());
        if self.bytes.capacity().saturating_sub(self.bytes.len()) < need {
            // Grow by a quarter: doubling could exceed the bound on a slow peer's buffer.
            self.bytes.reserve_exact(need.max(self.bytes.len() / 4));
        }
        self.bytes.extend_from_slice(&header.to_be_bytes());
        self.bytes.extend_from_slice(record);
        self.lens.push_back(record.len());
        Ok(())
    }

    pub(super) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Marks `count` bytes as written. Returns how many bytes of records, without headers, are now
    /// completely written.
    pub(super) fn advance(&mut self, count: usize) -> usize {
        self.start = self.start.saturating_add(count).min(self.bytes.len());
        self.begun = self.begun.saturating_add(count);
        let mut ended = 0_usize;
        while let Some(len) = self.lens.front().copied()
            && let Some(begun) = self.begun.checked_sub(len.saturating_add(HEADER_LEN))
        {
            self.lens.pop_front();
            self.begun = begun;
            ended = ended.saturating_add(len);
        }
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            if self.bytes.capacity() > KEPT {
                self.bytes.shrink_to(KEPT);
            }
        } else if self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        ended
    }
}

/// Buffer capacity that an empty writer keeps, bytes.
const KEPT: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(records: &[&[u8]]) -> Vec<u8> {
        let mut writer = RecordWriter::default();
        for record in records {
            writer.push(record).unwrap();
        }
        writer.waiting().to_vec()
    }

    fn read(reader: &mut RecordReader, mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let mut rest = bytes;
            if let Some(record) = reader.next(&mut rest)? {
                records.push(record.to_vec());
            }
            bytes = rest;
        }
        Ok(records)
    }

    #[test]
    fn records_are_parsed_from_any_split_of_the_stream() {
        let records: [&[u8]; 5] = [b"one", b"", b"three", &[7; 300], b"end"];
        let bytes = stream(&records);
        assert_eq!(bytes.get(..7), Some(&[0, 0, 0, 3, b'o', b'n', b'e'][..]));
        for step in 1..=bytes.len() {
            let mut reader = RecordReader::new(300);
            let found: Vec<_> = bytes
                .chunks(step)
                .flat_map(|chunk| read(&mut reader, chunk).unwrap())
                .collect();
            assert_eq!(found, records, "cut each {step}");
            assert!(!reader.is_partial());
        }
    }

    #[test]
    fn an_incomplete_record_is_detected() {
        let mut reader = RecordReader::new(8);
        let bytes = stream(&[b"abc"]);
        for end in 1..bytes.len() {
            assert!(read(&mut reader, &bytes[end - 1..end]).unwrap().is_empty());
            assert!(reader.is_partial());
        }
        assert_eq!(read(&mut reader, b"c").unwrap(), [b"abc"]);
        assert!(!reader.is_partial());
    }

    #[test]
    fn a_length_over_the_limit_is_refused_without_an_allocation() {
        for cut in [1, 4, 5, 64] {
            let mut reader = RecordReader::new(16);
            let mut bytes = 17_u32.to_be_bytes().to_vec();
            bytes.extend([0; 60]);
            let result: Result<Vec<_>, _> = bytes
                .chunks(cut)
                .map(|chunk| read(&mut reader, chunk))
                .collect();
            assert_eq!(result, Err(TooLong));
        }
        let mut reader = RecordReader::new(1 << 30);
        assert_eq!(read(&mut reader, &[0x40, 0, 0, 0, 1]), Ok(Vec::new()));
        assert!(reader.partial.capacity() < 64);
    }

    #[test]
    fn written_bytes_are_released_record_by_record() {
        let mut writer = RecordWriter::default();
        writer.push(&[1; 10]).unwrap();
        writer.push(&[]).unwrap();
        writer.push(&[2; 20]).unwrap();
        let total = writer.waiting().len();
        assert_eq!(total, 42);
        let given: Vec<_> = (0..total).map(|_| writer.advance(1)).collect();
        assert_eq!(given.iter().sum::<usize>(), 30);
        assert_eq!(given.get(13), Some(&10));
        assert_eq!(given.last(), Some(&20));
        assert!(writer.waiting().is_empty());
    }
    #[test]
    fn ls_19_queued_records_use_little_more_memory_than_their_length() {
        let mut writer = RecordWriter::default();
        for _ in 0..1_000 {
            writer.push(&[7; 996]).unwrap();
            let waiting = writer.waiting().len();
            assert!(writer.bytes.capacity() <= waiting * 5 / 4 + 1_000);
        }
        assert_eq!(writer.advance(1_000_000), 996_000);
        assert!(writer.bytes.capacity() <= KEPT);
    }
}
