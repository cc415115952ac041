//! The attribute `service` of `pipewright-ipc`, which documents it: its expansion is code of that crate.
//!
//! | file | contents |
//! |---|---|
//! | `parse.rs` | the trait, and the mistakes in it |
//! | `expand.rs` | the code of both sides, and the identity of a service |

#![forbid(unsafe_code)]

mod expand;
mod parse;

use proc_macro::TokenStream;
use quote::quote;

/// Makes a trait a service: a worker implements the trait, and a generated client calls it in a pool of workers.
/// The module `pipewright_ipc::service` has the documentation.
#[proc_macro_attribute]
pub fn service(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = parse::Service::parse(arguments.into(), item.into()).map(|service| {
        let (service_trait, client) = (expand::service_trait(&service), expand::client(&service));
        quote! { #service_trait #client }
    });
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}
