//! Attributes for tests that run under a watchdog, or also in a separate process.
//!
//! `pipewright-tests` has the functions that they call. Both keep the tokens of the body, so the compiler
//! reports an error in it at its own line. A test is attributes, `fn`, a name and a body, which `proc_macro`
//! alone can take apart: no parser is needed.

#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Makes the function a test; a watchdog ends it if it hangs.
///
/// `#[watched_test(limit = EXPRESSION)]` sets the time that it may take, a `Duration`, instead of
/// 120 s.
#[proc_macro_attribute]
pub fn watched_test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expand(arguments, function, false).unwrap_or_else(|message| error(&message))
}

/// Makes the function a test that runs in a new process, alone, under a watchdog.
///
/// The attribute knows the test's full name, and the new process runs that test only. `limit = EXPRESSION` is
/// the option of [`macro@watched_test`]. `in_a_session` comes before it, and gives the process a session of
/// its own, not only a process group (Unix).
#[proc_macro_attribute]
pub fn isolated_test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expand(arguments, function, true).unwrap_or_else(|message| error(&message))
}

/// The options in the attribute's parentheses.
#[derive(Default)]
struct AttributeOptions {
    limit: Option<TokenStream>,
    in_a_session: bool,
}

fn expand(
    arguments: TokenStream,
    function: TokenStream,
    is_isolated: bool,
) -> Result<TokenStream, String> {
    let options = options(arguments)?;
    if options.in_a_session && !is_isolated {
        return Err("only an isolated test has a session of its own".to_owned());
    }
    let mut head: Vec<TokenTree> = function.into_iter().collect();
    let Some(TokenTree::Group(body)) = head.pop() else {
        return Err("a test is a function with a body".to_owned());
    };
    let name = name(&head).ok_or("a test is a function")?;
    let mut watched: TokenStream = match options.limit {
        Some(limit) => call("let _watch = ::pipewright_tests::watchdog::watch_for", limit)?,
        None => call("let _watch = ::pipewright_tests::watchdog::watch", TokenStream::new())?,
    };
    watched.extend(code(";")?);
    watched.extend(body.stream());
    let body = if is_isolated {
        let run = if options.in_a_session { "isolated_in_a_session" } else { "isolated" };
        let path = "::core::concat!(::core::module_path!(), \"::\", ::core::stringify!";
        let mut arguments = code(&format!("{path}({name})), ||"))?;
        arguments.extend([block(watched)]);
        call(&format!("::pipewright_tests::watchdog::{run}"), arguments)?
    } else {
        watched
    };
    let mut test = code("#[::core::prelude::v1::test]")?;
    test.extend(head);
    test.extend([block(body)]);
    Ok(test)
}

/// Returns the name of the function whose body follows these tokens.
fn name(head: &[TokenTree]) -> Option<String> {
    let at = head.iter().position(|token| token.to_string() == "fn")?;
    head.get(at + 1).map(ToString::to_string)
}

fn options(arguments: TokenStream) -> Result<AttributeOptions, String> {
    let mut options = AttributeOptions::default();
    let mut rest = arguments.into_iter().peekable();
    while let Some(word) = rest.next() {
        match word.to_string().as_str() {
            "in_a_session" => options.in_a_session = true,
            "limit" if rest.next().is_some_and(|sign| sign.to_string() == "=") => {
                // The expression is all that follows.
                options.limit = Some(rest.by_ref().collect());
            }
            "," => {}
            other => return Err(format!("no option of a test: {other}")),
        }
    }
    Ok(options)
}

fn code(text: &str) -> Result<TokenStream, String> {
    text.parse().map_err(|error| format!("{error}: {text}"))
}

fn call(function: &str, arguments: TokenStream) -> Result<TokenStream, String> {
    let mut call = code(function)?;
    call.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, arguments))]);
    Ok(call)
}

fn block(content: TokenStream) -> TokenTree {
    Group::new(Delimiter::Brace, content).into()
}

fn error(message: &str) -> TokenStream {
    // A string that is printed as Rust writes it can always be read again.
    format!("::core::compile_error!({message:?});").parse().unwrap_or_default()
}
