//! The join file, which lists the nodes that may join.

use hub::JoinFile;

/// Parses a join file. An accepted file survives a round trip. An error names a line of the file.
pub fn parse(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let file = match JoinFile::parse(text) {
        Ok(file) => file,
        Err(error) => {
            let lines = text.lines().count();
            let line = usize::try_from(error.line).expect("a line number");
            assert!(line <= lines, "{error}, of {lines} lines");
            return;
        }
    };
    assert!(file.grants.len() <= JoinFile::GRANTS_MAX);
    let written = file.to_text();
    let again = JoinFile::parse(&written).expect("what is written is read");
    assert_eq!(again.grants, file.grants);
    assert_eq!(
        again.network_secret.as_bytes(),
        file.network_secret.as_bytes()
    );
    assert_eq!(again.to_text(), written);
}
