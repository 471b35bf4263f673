//! Hexadecimal text.

/// Encodes bytes, two digits each.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
        text
    })
}

/// Decodes what [`encode`] returns, in either case; `None` for anything else.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| {
        let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        u8::try_from(digit(0)? << 4 | digit(1)?).ok()
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(encode(&[0x00, 0x7f, 0xa5, 0xff]), "007fa5ff");
        assert_eq!(encode(&[]), "");
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        assert_eq!(decode("007Fa5ff"), Some(vec![0x00, 0x7f, 0xa5, 0xff]));
        assert_eq!(decode(""), Some(Vec::new()));
        for bad in ["0", "000", "0g", "é", " 00"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
