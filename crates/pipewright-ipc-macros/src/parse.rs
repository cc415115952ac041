//! The trait of a service, and the mistakes in it.

use proc_macro2::TokenStream;
use syn::parse::Parser as _;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, GenericArgument, Ident, ItemTrait, Lit, Meta,
    MetaNameValue, Pat, PathArguments, Result, ReturnType, TraitItem, TraitItemFn, Type,
    Visibility,
};

/// The methods that the attribute adds to the trait.
const ADDED_TO_TRAIT: [&str; 2] = ["serve", "reset"];
/// The methods that every client has.
const ADDED_TO_CLIENT: [&str; 5] = ["new", "pool", "timeout", "cancel", "shut_down"];

/// The trait of a service.
pub(crate) struct Service {
    /// The name in the identity.
    pub(crate) name: String,
    pub(crate) version: u64,
    /// The trait as it was written, without the attributes of this crate.
    pub(crate) item: ItemTrait,
    pub(crate) methods: Vec<Method>,
}

/// A method of the trait.
pub(crate) struct Method {
    pub(crate) name: Ident,
    pub(crate) docs: Vec<Attribute>,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) output: TokenStream,
    /// The part of the return value that is not serialized.
    pub(crate) returned: Returned,
    pub(crate) stream: Stream,
    pub(crate) is_idempotent: bool,
}

/// A part of the return value that goes through as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returned {
    /// None: it is serialized.
    Value,
    /// All of it.
    Bytes,
    /// The success of a result.
    BytesOrError,
}

/// A parameter of a method, in order.
pub(crate) enum Argument {
    Value(Ident, Box<Type>),
    /// Bytes that go through as they are.
    Bytes(Ident, Box<Type>),
    /// The context or the streams of the call.
    Stream,
}

/// The items that go with a call.
pub(crate) enum Stream {
    /// None, and no context either.
    Nothing,
    Context,
    Input(Box<Type>),
    Output(Box<Type>),
    Duplex(Box<Type>, Box<Type>),
}

impl Service {
    pub(crate) fn parse(arguments: TokenStream, item: TokenStream) -> Result<Service> {
        let mut item: ItemTrait = syn::parse2(item)?;
        let (name, version) = options(arguments)?;
        check_trait(&item)?;
        let mut methods = Vec::new();
        for item in &mut item.items {
            match item {
                TraitItem::Fn(method) => methods.push(Method::take(method)?),
                other => return Err(Error::new(other.span(), "a service has methods only")),
            }
        }
        let name = name.unwrap_or_else(|| item.ident.to_string());
        Ok(Service { name, version, item, methods })
    }

    pub(crate) fn visibility(&self) -> &Visibility {
        &self.item.vis
    }
}

/// Returns the name and the version among the attribute's arguments.
fn options(arguments: TokenStream) -> Result<(Option<String>, u64)> {
    let (mut name, mut version) = (None, 1);
    let parser = syn::punctuated::Punctuated::<MetaNameValue, syn::Token![,]>::parse_terminated;
    for option in parser.parse2(arguments)? {
        let Expr::Lit(ExprLit { lit, .. }) = &option.value else {
            return Err(Error::new(option.value.span(), "a literal is expected"));
        };
        match lit {
            Lit::Str(text) if option.path.is_ident("name") => {
                let text = text.value();
                if text.is_empty() || text.len() > 100 || !text.chars().all(is_name_character) {
                    let message = "a name has 1 to 100 letters, digits, `-`, `_`, `.` and `:`";
                    return Err(Error::new(lit.span(), message));
                }
                name = Some(text);
            }
            Lit::Int(number) if option.path.is_ident("version") => {
                version = number.base10_parse()?
            }
            _ => {
                let message = "the options are `name = \"...\"` and `version = NUMBER`";
                return Err(Error::new(option.span(), message));
            }
        }
    }
    Ok((name, version))
}

fn is_name_character(character: char) -> bool {
    character.is_alphanumeric() || "-_.:".contains(character)
}

fn check_trait(item: &ItemTrait) -> Result<()> {
    if !item.generics.params.is_empty() || item.generics.where_clause.is_some() {
        return Err(Error::new(item.generics.span(), "a service has no generic parameters"));
    }
    if let Some(token) = &item.unsafety {
        return Err(Error::new(token.span(), "a service is not unsafe"));
    }
    Ok(())
}

impl Method {
    /// Takes the method out of the trait, and removes the attributes of this crate there.
    fn take(method: &mut TraitItemFn) -> Result<Method> {
        let (name, mut is_idempotent, mut mistake) = (method.sig.ident.clone(), false, None);
        method.attrs.retain(|attribute| {
            let is_ours = attribute.path().is_ident("idempotent");
            match &attribute.meta {
                Meta::Path(_) if is_ours => is_idempotent = true,
                _ if is_ours => mistake = Some((attribute.span(), "no arguments are expected")),
                _ if attribute.path().is_ident("cfg") => {
                    let message =
                        "with `cfg` on a method, the two sides could have different methods";
                    mistake = Some((attribute.span(), message));
                }
                _ => {}
            }
            !is_ours
        });
        if let Some((span, message)) = mistake {
            return Err(Error::new(span, message));
        }
        let signature = &method.sig;
        check_signature(signature)?;
        let mut arguments = Vec::new();
        let mut stream = Stream::Nothing;
        for parameter in signature.inputs.iter().skip(1) {
            let FnArg::Typed(parameter) = parameter else { continue };
            match Stream::of(&parameter.ty)? {
                Some(_) if !matches!(stream, Stream::Nothing) => {
                    let message = "a method has one of `Context`, `Input`, `Output` and `Duplex`";
                    return Err(Error::new(parameter.span(), message));
                }
                Some(found) => {
                    stream = found;
                    arguments.push(Argument::Stream);
                }
                None => {
                    check_value(&parameter.ty)?;
                    let Pat::Ident(pattern) = &*parameter.pat else {
                        return Err(Error::new(parameter.pat.span(), "a name is expected"));
                    };
                    arguments.push(Argument::Value(pattern.ident.clone(), parameter.ty.clone()));
                }
            }
        }
        if is_idempotent && matches!(stream, Stream::Input(_) | Stream::Duplex(..)) {
            let message = "a call with an `Input` cannot be retried: nothing keeps its items";
            return Err(Error::new(name.span(), message));
        }
        let last_bytes = arguments
            .iter_mut()
            .rfind(|argument| matches!(argument, Argument::Value(_, kind) if is_bytes(kind)));
        if let Some(argument) = last_bytes {
            if let Argument::Value(name, kind) = argument {
                *argument = Argument::Bytes(name.clone(), kind.clone());
            }
        }
        let (output, mut returned) = match &signature.output {
            ReturnType::Default => (quote::quote! { () }, Returned::Value),
            ReturnType::Type(_, output) => {
                check_value(output)?;
                (quote::quote! { #output }, Returned::of(output))
            }
        };
        if !matches!(stream, Stream::Nothing | Stream::Context) {
            returned = Returned::Value;
        }
        let is_doc = |it: &&Attribute| it.path().is_ident("doc");
        let docs = method.attrs.iter().filter(is_doc).cloned().collect();
        Ok(Method { name, docs, arguments, output, returned, stream, is_idempotent })
    }

    /// Returns the names and the types of the arguments that are sent.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (&Ident, &Type)> {
        self.arguments.iter().filter_map(|argument| match argument {
            Argument::Value(name, kind) | Argument::Bytes(name, kind) => Some((name, &**kind)),
            Argument::Stream => None,
        })
    }

    /// Returns for each of them if it goes through as it is.
    pub(crate) fn are_bytes(&self) -> impl Iterator<Item = bool> {
        self.arguments.iter().filter_map(|argument| match argument {
            Argument::Value(..) => Some(false),
            Argument::Bytes(..) => Some(true),
            Argument::Stream => None,
        })
    }
}

/// Returns true for a type that is written `Vec<u8>` or `Bytes`.
fn is_bytes(kind: &Type) -> bool {
    let Some((name, arguments)) = named(kind) else { return false };
    match &arguments[..] {
        [] => name == "Bytes",
        [item] => {
            let is_u8 = named(item).is_some_and(|(item, _)| item == "u8");
            name == "Vec" && is_u8
        }
        _ => false,
    }
}

/// Returns the last name of a path, and the types that it has as arguments.
fn named(kind: &Type) -> Option<(&Ident, Vec<&Type>)> {
    let Type::Path(path) = kind else { return None };
    let last = path.path.segments.last()?;
    let types = match &last.arguments {
        PathArguments::None => Vec::new(),
        PathArguments::AngleBracketed(arguments) => {
            let types = arguments.args.iter().map(|argument| match argument {
                GenericArgument::Type(kind) => Some(kind),
                _ => None,
            });
            types.collect::<Option<_>>()?
        }
        PathArguments::Parenthesized(_) => return None,
    };
    Some((&last.ident, types))
}

impl Returned {
    fn of(output: &Type) -> Returned {
        match named(output) {
            _ if is_bytes(output) => Returned::Bytes,
            Some((name, types)) if name == "Result" => match &types[..] {
                [success, _] if is_bytes(success) => Returned::BytesOrError,
                _ => Returned::Value,
            },
            _ => Returned::Value,
        }
    }
}

fn check_signature(signature: &syn::Signature) -> Result<()> {
    let name = signature.ident.to_string();
    let is_added = ADDED_TO_TRAIT.contains(&&*name) || ADDED_TO_CLIENT.contains(&&*name);
    if is_added || name.ends_with("_async") || name.starts_with("begin_") {
        let message = format!("the attribute adds a method `{name}`: this one needs another name");
        return Err(Error::new(signature.ident.span(), message));
    }
    if !signature.generics.params.is_empty() {
        let message = "a method has no generic parameters: both sides need the same types";
        return Err(Error::new(signature.generics.span(), message));
    }
    if let Some(token) = &signature.asyncness {
        let message = "a worker answers one call after the other: remove `async`";
        return Err(Error::new(token.span(), message));
    }
    let is_by_reference = signature
        .receiver()
        .is_some_and(|receiver| matches!(receiver.kind, syn::ReceiverKind::Reference(..)));
    if !is_by_reference {
        let message = "a method begins with `&self` or `&mut self`";
        return Err(Error::new(signature.ident.span(), message));
    }
    Ok(())
}

/// Refuses a type that is no value of its own.
fn check_value(kind: &Type) -> Result<()> {
    match kind {
        Type::Reference(_) => Err(Error::new(
            kind.span(),
            "a value comes from another process: use an owned type (`String`, `Vec<u8>`), \
             or one of `&mut Context<'_>`, \
             `&mut Input<'_, T>`, `&mut Output<'_, T>` and `&mut Duplex<'_, In, Out>`",
        )),
        Type::ImplTrait(_) | Type::TraitObject(_) => {
            Err(Error::new(kind.span(), "both sides need the same type: name it"))
        }
        _ => Ok(()),
    }
}

impl Stream {
    /// Returns the kind of stream if the parameter is one.
    fn of(kind: &Type) -> Result<Option<Stream>> {
        let Type::Reference(reference) = kind else { return Ok(None) };
        let Type::Path(path) = &*reference.elem else { return Ok(None) };
        let Some(last) = path.path.segments.last() else { return Ok(None) };
        let mut types = Vec::new();
        if let PathArguments::AngleBracketed(arguments) = &last.arguments {
            types.extend(arguments.args.iter().filter_map(|argument| match argument {
                GenericArgument::Type(kind) => Some(Box::new(kind.clone())),
                _ => None,
            }));
        }
        let mut types = types.into_iter();
        let stream = match (last.ident.to_string().as_str(), types.next(), types.next()) {
            ("Context", None, None) => Stream::Context,
            ("Input", Some(item), None) => Stream::Input(item),
            ("Output", Some(item), None) => Stream::Output(item),
            ("Duplex", Some(input), Some(output)) => Stream::Duplex(input, output),
            ("Input" | "Output", ..) => {
                return Err(Error::new(last.span(), "the type of an item is expected"));
            }
            ("Duplex", ..) => {
                return Err(Error::new(last.span(), "the types of both items are expected"));
            }
            _ => return Ok(None),
        };
        if reference.mutability.is_none() {
            return Err(Error::new(kind.span(), "`&mut` is expected"));
        }
        Ok(Some(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(options: &str, item: &str) -> String {
        let (options, item) = (options.parse().unwrap(), item.parse().unwrap());
        Service::parse(options, item).err().unwrap().to_string()
    }

    #[test]
    fn mistakes_are_named() {
        for (method, words) in [
            ("fn f(&self, text: &str);", "use an owned type"),
            ("fn f(&self, text: impl Into<String>);", "name it"),
            ("fn f(&self) -> &str;", "use an owned type"),
            ("fn f(text: String);", "begins with `&self`"),
            ("fn f(self);", "begins with `&self`"),
            ("fn f<T>(&self, it: T);", "no generic parameters"),
            ("async fn f(&self);", "remove `async`"),
            ("fn f(&self, (a, b): (u8, u8));", "a name is expected"),
            ("fn f(&self, items: &Input<'_, u8>);", "`&mut` is expected"),
            ("fn f(&self, items: &mut Input<'_>);", "the type of an item is expected"),
            ("fn f(&self, items: &mut Duplex<'_, u8>);", "the types of both items"),
            ("fn f(&self, a: &mut Input<'_, u8>, b: &mut Context<'_>);", "has one of"),
            ("#[idempotent] fn f(&self, a: &mut Input<'_, u8>);", "cannot be retried"),
            ("#[idempotent(3)] fn f(&self);", "no arguments"),
            ("#[cfg(unix)] fn f(&self);", "different methods"),
            ("fn serve(&self);", "adds a method `serve`"),
            ("fn pool(&self);", "adds a method `pool`"),
            ("fn f_async(&self);", "adds a method `f_async`"),
            ("fn begin_f(&self);", "adds a method `begin_f`"),
            ("type T;", "methods only"),
        ] {
            let error = mistake("", &format!("trait Wrong {{ {method} }}"));
            assert!(error.contains(words), "{method}: {error}");
        }
        assert!(mistake("", "trait Wrong<T> {}").contains("no generic parameters"));
        assert!(mistake("", "unsafe trait Wrong {}").contains("not unsafe"));
        assert!(mistake("version", "trait Wrong {}").contains("="));
        assert!(mistake("versio = 1", "trait Wrong {}").contains("the options are"));
        assert!(mistake("name = \"a b\"", "trait Wrong {}").contains("1 to 100"));
    }

    #[test]
    fn one_argument_of_bytes_and_a_return_value_go_through_as_they_are() {
        let item = "trait Raw {
            fn one(&self, a: Vec<u8>) -> std::vec::Vec<u8>;
            fn last(&self, a: Vec<u8>, n: u8, b: service::Bytes) -> Result<Bytes, String>;
            fn none(&self, a: Vec<u16>, b: Option<Vec<u8>>, c: Bytes<u8>) -> Result<u8, Vec<u8>>;
            fn items(&self, a: Vec<u8>, items: &mut Output<'_, Vec<u8>>) -> Vec<u8>;
        }";
        let service = Service::parse(TokenStream::new(), item.parse().unwrap()).unwrap();
        let facts: Vec<_> = service
            .methods
            .iter()
            .map(|method| (method.are_bytes().collect::<Vec<_>>(), method.returned as u8))
            .collect();
        let expected = [
            (vec![true], Returned::Bytes as u8),
            (vec![false, false, true], Returned::BytesOrError as u8),
            (vec![false, false, false], Returned::Value as u8),
            (vec![true], Returned::Value as u8),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn parameters_are_recognized_by_their_types() {
        let item = "trait Right {
            fn plain(&mut self, a: u8, b: Option<String>) -> u8;
            #[idempotent] fn cancelled(&self, call: &mut service::Context<'_>, a: u8);
            fn input(&self, mut items: &mut Input<'_, u8>);
            fn output(&self, items: &mut Output<u8>);
            fn duplex(&self, items: &mut pipewright_ipc::service::Duplex<'_, u8, String>);
        }";
        let service =
            Service::parse("version = 3".parse().unwrap(), item.parse().unwrap()).unwrap();
        assert_eq!((service.name.as_str(), service.version), ("Right", 3));
        let [plain, cancelled, input, output, duplex] = &service.methods[..] else { panic!() };
        assert!(matches!(plain.stream, Stream::Nothing) && plain.sent().count() == 2);
        assert!(matches!(cancelled.stream, Stream::Context) && cancelled.is_idempotent);
        assert!(matches!(cancelled.arguments[..], [Argument::Stream, Argument::Value(..)]));
        assert!(matches!(input.stream, Stream::Input(_)));
        assert!(matches!(output.stream, Stream::Output(_)));
        assert!(matches!(duplex.stream, Stream::Duplex(..)));
        // The compiler would not know it.
        let TraitItem::Fn(method) = &service.item.items[1] else { panic!() };
        assert!(method.attrs.is_empty());
    }
}
