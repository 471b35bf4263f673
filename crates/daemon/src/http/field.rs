//! Header fields that several servers read.

use axum::http::{HeaderMap, header};

/// Returns the token of `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).
///
/// The scheme is case-insensitive and may be followed by several spaces (RFC 9110, section 11.4).
/// Two such fields count as none.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let token = rest.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_token68(token)).then_some(token)
}

/// Whether `text` is a `token68` (RFC 9110, section 11.2).
fn is_token68(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !body.is_empty() && body.bytes().all(is_allowed)
}

/// Whether the body's media type is `expected`; case and parameters are ignored (RFC 9110, section
/// 8.3.1).
pub(crate) fn has_media_type(headers: &HeaderMap, expected: &str) -> bool {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let text = value.to_str().unwrap_or_default();
    let media = text.split_once(';').map_or(text, |(media, _)| media);
    media
        .trim_matches([' ', '\t'])
        .eq_ignore_ascii_case(expected)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(name: &str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            // Field names are case-insensitive (RFC 9110, section 5.1).
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn rfc9110_the_bearer_scheme_ignores_case_and_extra_spaces() {
        for (name, text) in [
            ("Authorization", "Bearer aZ9-._~+/=="),
            ("authorization", "bearer aZ9-._~+/=="),
            ("AUTHORIZATION", "BEARER aZ9-._~+/=="),
            ("aUTHORIZATION", "bEaReR   aZ9-._~+/=="),
        ] {
            let headers = headers(name, &[text]);
            assert_eq!(bearer_token(&headers), Some("aZ9-._~+/=="), "{text}");
        }
        for text in [
            "",
            "Bearer",
            "Bearer ",
            "Basic abc",
            "Bearerabc",
            "abc",
            "Bearer a b",
            "Bearer a,b",
            "Bearer ==",
            "Bearer a=b",
            "Bearer \"abc\"",
            "Bearer\tabc",
        ] {
            let headers = headers("authorization", &[text]);
            assert_eq!(bearer_token(&headers), None, "{text}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
        let twice = headers("authorization", &["Bearer abc", "Bearer abc"]);
        assert_eq!(bearer_token(&twice), None);
    }

    #[test]
    fn rfc9110_media_types_ignore_case_and_parameters() {
        let is_json =
            |values: &[&str]| has_media_type(&headers("CONTENT-type", values), "application/json");
        for text in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"utf;8\"",
            "application/json \t; a=b",
        ] {
            assert!(is_json(&[text]), "{text}");
        }
        for text in ["", "text/json", "application/jsonx", "application/ json"] {
            assert!(!is_json(&[text]), "{text}");
        }
        assert!(!is_json(&[]));
        assert!(!is_json(&["application/json", "application/json"]));
    }
}
