//! `name = hex` files.

use std::collections::BTreeMap;

pub(crate) struct Vectors(BTreeMap<&'static str, Vec<u8>>);

impl Vectors {
    pub(crate) fn parse(text: &'static str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once(" = "));
        Self(pairs.map(|(name, hex)| (name, unhex(hex))).collect())
    }

    pub(crate) fn get(&self, name: &str) -> &[u8] {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("no vector {name}"))
    }

    pub(crate) fn try_get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    pub(crate) fn array<const LEN: usize>(&self, name: &str) -> [u8; LEN] {
        self.get(name).try_into().unwrap()
    }
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty(), "{hex}");
    let digit = |byte| char::from(byte).to_digit(16).unwrap();
    let byte = |&[high, low]: &[u8; 2]| u8::try_from(digit(high) * 16 + digit(low)).unwrap();
    pairs.iter().map(byte).collect()
}

pub(crate) fn unhex_array<const LEN: usize>(hex: &str) -> [u8; LEN] {
    unhex(hex).try_into().unwrap()
}
