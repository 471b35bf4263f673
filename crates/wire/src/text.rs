//! Macros for `Display`, `Error` and `Debug`.

/// Implements `Display` and `Error`: each pattern has a format string, which can name its bindings.
#[macro_export]
macro_rules! error_text {
    ($type:ty { $($pattern:pat => $text:literal,)* }) => {
        $crate::display_text! { $type { $($pattern => $text,)* }}

        impl core::error::Error for $type {}
    };
}

/// Implements `Display`: each pattern has a format string, which can name its bindings.
#[macro_export]
macro_rules! display_text {
    ($type:ty { $($pattern:pat => $text:literal,)* }) => {
        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $($pattern => core::write!(f, $text),)*
                }
            }
        }
    };
}

/// Implements `Debug` with some fields: each has an expression of the value, which is named first.
///
/// ```
/// struct Table<K> {
///     rows: Vec<K>,
/// }
///
/// wire::debug_fields!([K] Table<K>, this { rows: this.rows.len() });
///
/// let table = Table { rows: vec![(), ()] };
/// assert_eq!(format!("{table:?}"), "Table { rows: 2, .. }");
/// ```
#[macro_export]
macro_rules! debug_fields {
    ($([$($bound:tt)+])? $name:ident $(<$($parameter:tt),+>)?
        $(, $this:ident { $($field:ident: $value:expr),+ $(,)? })?) => {
        impl $(<$($bound)+>)? core::fmt::Debug for $name $(<$($parameter),+>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut fields = f.debug_struct(stringify!($name));
                $(
                    let $this = self;
                    $(fields.field(stringify!($field), &$value);)+
                )?
                fields.finish_non_exhaustive()
            }
        }
    };
}

/// Implements `Debug` for types with secret contents: it prints only the type's name.
#[macro_export]
macro_rules! opaque_debug {
    ($($name:ident $(<$parameter:ident>)?),+) => {$(
        impl $(<$parameter>)? core::fmt::Debug for $name $(<$parameter>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    )+};
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use core::error::Error;

    #[derive(Debug)]
    enum Fault {
        Empty,
        TooLong { len: usize },
    }

    error_text! { Fault {
        Self::Empty => "it is {{}}",
        Self::TooLong { len } => "it has {len:?} bytes",
    }}

    #[test]
    fn each_variant_has_its_text() {
        let texts = [Fault::Empty, Fault::TooLong { len: 7 }].map(|fault| fault.to_string());
        assert_eq!(texts, ["it is {}", "it has 7 bytes"]);
        assert!(Fault::Empty.source().is_none());
    }
}
