//! Keys, prefixes and ranges of the hub's key-value store.

use hub::kv::{KvKey, KvPrefix, KvRange};

/// Compares ranges with comparisons of text: lines are keys, the first is a prefix.
pub fn ranges(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.lines();
    let Ok(prefix) = KvPrefix::new(lines.next().unwrap_or_default()) else {
        return;
    };
    let keys: Vec<_> = lines
        .take(16)
        .filter_map(|line| KvKey::new(line).ok())
        .collect();
    let range = KvRange::prefix(&prefix);
    for key in &keys {
        let starts = key.as_str().starts_with(prefix.as_str());
        assert_eq!(key.starts_with(&prefix), starts, "{key} and {prefix:?}");
        assert_eq!(
            range.contains(key),
            starts,
            "{key} in the range of {prefix:?}"
        );
        let rest = KvRange::all().after(key);
        let bounded = KvRange::between(Some(key), None);
        for other in &keys {
            let is_after = other.as_str() > key.as_str();
            assert_eq!(rest.contains(other), is_after, "{other} after {key}");
            let is_from = other.as_str() >= key.as_str();
            assert_eq!(bounded.contains(other), is_from, "{other} from {key}");
            let between = KvRange::between(Some(key), Some(other));
            assert!(!between.contains(other), "the end is not in the range");
        }
    }
}
