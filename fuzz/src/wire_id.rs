//! Ids of `wire` in text form.

use wire::NodeId;

/// Parses a node id. An accepted one has one text form and parses again.
pub fn node_id(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    if let Ok(id) = text.parse::<NodeId>() {
        let written = id.to_string();
        assert_eq!(
            written,
            text.to_ascii_lowercase(),
            "two ways to write one id"
        );
        assert_eq!(written.parse(), Ok(id), "what is written is not read");
    }
}
