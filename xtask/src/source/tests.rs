use super::*;

#[test]
fn blanks_comments_and_literals_and_keeps_positions() {
    let text = r##"
// tokio in a comment
/* tokio /* nested */ still */ let a = "tokio \" tokio"; let b = 't';
let c = r#"tokio " tokio"#; let d = b"tokio"; let e = '\''; let f = br"tokio";
let lifetime: &'static str = tokio_name; let é = "é"; /// tokio
"##;
    let code = blank(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(line_of(&code, code.len()), line_of(text, text.len()));
    assert!(!has_word(&code, "tokio"), "{code}");
    assert!(code.contains("&'static str = tokio_name"), "{code}");
    assert!(code.contains("let é ="), "{code}");
    assert_eq!(code.find("let f"), text.find("let f"));
}

#[test]
fn a_literal_left_open_ends_with_the_file() {
    for text in ["\"open", "/* open", "r#\"open\"", "'", "'\\", "b", "\"\\"] {
        assert_eq!(blank(text).len(), text.len(), "{text}");
    }
}

#[test]
fn a_name_that_ends_in_r_opens_no_raw_string() {
    let code = blank("for_r\"inside\" + r#type");
    assert!(code.starts_with("for_r"), "{code}");
    assert!(!code.contains("inside"), "{code}");
    assert!(code.contains("r#type"), "{code}");
}

#[test]
fn test_items_end_with_their_brackets() {
    let text = "fn a() {}\n#[cfg(test)]\n#[expect(x, reason = \"y\")]\nmod tests {\n fn b() { c(); }\n}\nfn d() {}\n#[cfg(test)]\nuse e::f;\nfn g() {}\n";
    let source = Source::scan("crates/x/src/x.rs", text);
    for shipped in ["fn a()", "fn d()", "fn g()"] {
        assert!(source.shipped.contains(shipped), "{shipped}");
        assert!(!source.tests.contains(shipped), "{shipped}");
    }
    for test in ["fn b()", "use e::f"] {
        assert!(source.tests.contains(test), "{test}");
        assert!(!source.shipped.contains(test), "{test}");
    }
    assert_eq!(
        line_of(&source.shipped, source.shipped.find("fn d").unwrap()),
        7
    );
}

#[test]
fn a_file_below_tests_is_all_test() {
    let source = Source::scan("crates/x/tests/it/main.rs", "fn a() {}");
    assert_eq!(source.shipped.trim(), "");
    assert_eq!(source.tests, "fn a() {}");
}

#[test]
fn words_match_complete_names_only() {
    let text = "max_len len lens .len( len";
    assert_eq!(words(text, "len").collect::<Vec<_>>(), [8, 18, 23]);
    assert_eq!(words(text, ".len(").count(), 1);
}

#[test]
fn brackets_match() {
    assert_eq!(closing("a { b(c[1]) } d", 2), Some(13));
    assert_eq!(closing("a { b", 2), None);
}
