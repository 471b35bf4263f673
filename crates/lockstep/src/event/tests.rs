use super::*;

#[test]
fn names_are_cut_and_made_printable() {
    let name = |text, len| SectionName::shortened(text, len).as_str().to_owned();
    assert_eq!(name("units", 32), "units");
    assert_eq!(name("units", 3), "uni");
    assert_eq!(name("a\nb", 32), "a?b");
    assert_eq!(name("é", 32), "??");
    assert_eq!(name(&"x".repeat(40), 99), "x".repeat(32));
}

#[test]
fn names_of_a_datagram_are_checked() {
    let read = |bytes: &[u8]| SectionName::from_bytes(bytes).map(|name| name.to_string());
    assert_eq!(read(b"").as_deref(), Some(""));
    assert_eq!(read(b"units ~").as_deref(), Some("units ~"));
    assert_eq!(read(&[b'x'; 32]), Some("x".repeat(32)));
    assert_eq!(read(&[b'x'; 33]), None);
    for byte in [0, 0x1b, 0x1f, 0x7f, 0x80, 0xff] {
        assert_eq!(read(&[b'a', byte]), None, "{byte:#x}");
    }
}

#[test]
fn a_cause_has_one_code() {
    for code in 0..=u8::MAX {
        let cause = Cause::from_code(code);
        assert!(cause.is_none_or(|cause| cause.code() == code));
        assert_eq!(cause.is_some(), code < 3);
    }
}
