//! Declares a WIT package for TypeScript: `xtask_declare WIT OUT`, one file for each interface of the package in `WIT`.
//!
//! What it declares is how `componentize-qjs` maps values, and nothing else does: an option that is absent arrives as
//! `null` (and may be sent as `undefined`), a variant is `{ tag, val }`, an error is what is thrown. The same package
//! gives the same text.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use wit_parser::{
    Docs, Function, FunctionKind, Handle, Interface, InterfaceId, Resolve, Type, TypeDef,
    TypeDefKind, TypeId, TypeOwner,
};

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [wit, out] = arguments.as_slice() else {
        bail!("usage: xtask_declare WIT OUT");
    };
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_dir(wit)
        .with_context(|| format!("{} does not read", wit.display()))?;
    std::fs::create_dir_all(out).with_context(|| format!("{} cannot be made", out.display()))?;
    let package = resolve
        .packages
        .get(package)
        .context("the package was read")?;
    for (name, id) in &package.interfaces {
        let text = Declared::new(&resolve, *id)?.module()?;
        let file = out.join(name).with_extension("d.ts");
        write(&file, &text)?;
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}

/// One interface on its way into text.
struct Declared<'a> {
    resolve: &'a Resolve,
    id: InterfaceId,
    interface: &'a Interface,
    name: &'a str,
    /// Whether components export it: then its functions are an author's to write.
    exported: bool,
}

impl<'a> Declared<'a> {
    fn new(resolve: &'a Resolve, id: InterfaceId) -> Result<Declared<'a>> {
        let interface = resolve.interfaces.get(id).context("an interface")?;
        let name = interface
            .name
            .as_deref()
            .context("an interface with a name")?;
        let exported = resolve.worlds.iter().any(|(_, world)| {
            world
                .exports
                .keys()
                .any(|key| *key == wit_parser::WorldKey::Interface(id))
        });
        Ok(Declared {
            resolve,
            id,
            interface,
            name,
            exported,
        })
    }

    fn module(&self) -> Result<String> {
        let full = self
            .resolve
            .id_of(self.id)
            .context("an interface of a package")?;
        let mut text = String::from(
            "// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.\n\n",
        );
        text += &docs(&self.interface.docs, "");
        writeln!(text, "declare module \"{full}\" {{")?;
        let mut values = Vec::new();
        for (name, id) in &self.interface.types {
            let definition = self.definition(*id)?;
            if let Some((from, original)) = self.used(definition)? {
                let (name, original) = (pascal(name), pascal(original));
                let named = match name == original {
                    true => name,
                    false => format!("{original} as {name}"),
                };
                writeln!(text, "    import type {{ {named} }} from \"{from}\";")?;
            }
        }
        for (name, id) in &self.interface.types {
            let definition = self.definition(*id)?;
            if self.used(definition)?.is_none() {
                text.push('\n');
                text += &self.declaration(name, *id, definition)?;
                if matches!(definition.kind, TypeDefKind::Resource) {
                    values.push(pascal(name));
                }
            }
        }
        let free = self
            .interface
            .functions
            .values()
            .filter(|f| f.kind == FunctionKind::Freestanding);
        if self.exported {
            writeln!(
                text,
                "\n    /** What a provider exports as `{}`. */",
                camel(self.name)
            )?;
            writeln!(text, "    export interface {} {{", pascal(self.name))?;
            for function in free {
                text += &self.documented(function, "        ")?;
                writeln!(
                    text,
                    "        {}{};",
                    camel(&function.name),
                    self.signature(function)?
                )?;
            }
            text.push_str("    }\n");
        } else {
            for function in free {
                text.push('\n');
                text += &self.documented(function, "    ")?;
                writeln!(
                    text,
                    "    export function {}{};",
                    camel(&function.name),
                    self.signature(function)?
                )?;
                values.push(camel(&function.name));
            }
            if !values.is_empty() {
                let all: Vec<String> = values
                    .iter()
                    .map(|value| format!("{value}: typeof {value}"))
                    .collect();
                writeln!(
                    text,
                    "\n    const all: {{ {} }};\n    export default all;",
                    all.join("; ")
                )?;
            }
        }
        text.push_str("}\n");
        Ok(text)
    }

    fn definition(&self, id: TypeId) -> Result<&'a TypeDef> {
        self.resolve.types.get(id).context("a type of the package")
    }

    /// Where a type comes from that this interface only uses: the module, and its name there.
    fn used(&self, definition: &TypeDef) -> Result<Option<(String, &'a str)>> {
        let TypeDefKind::Type(Type::Id(original)) = definition.kind else {
            return Ok(None);
        };
        let original = self.definition(original)?;
        match (&original.name, original.owner) {
            (Some(name), TypeOwner::Interface(owner)) if owner != self.id => {
                let from = self
                    .resolve
                    .id_of(owner)
                    .context("an interface of a package")?;
                Ok(Some((from, name)))
            }
            _ => Ok(None),
        }
    }

    fn declaration(&self, name: &str, id: TypeId, definition: &TypeDef) -> Result<String> {
        let name = pascal(name);
        let mut text = docs(&definition.docs, "    ");
        match &definition.kind {
            TypeDefKind::Record(record) => {
                writeln!(text, "    export interface {name} {{")?;
                for field in &record.fields {
                    text += &docs(&field.docs, "        ");
                    let absent = match self.is_option(&field.ty)? {
                        true => "?",
                        false => "",
                    };
                    writeln!(
                        text,
                        "        {}{absent}: {};",
                        camel(&field.name),
                        self.value(&field.ty)?
                    )?;
                }
                text.push_str("    }\n");
            }
            TypeDefKind::Flags(flags) => {
                writeln!(text, "    export interface {name} {{")?;
                for flag in &flags.flags {
                    text += &docs(&flag.docs, "        ");
                    writeln!(text, "        {}: boolean;", camel(&flag.name))?;
                }
                text.push_str("    }\n");
            }
            TypeDefKind::Enum(cases) => {
                writeln!(text, "    export type {name} =")?;
                for case in &cases.cases {
                    text += &docs(&case.docs, "        ");
                    writeln!(text, "        | \"{}\"", case.name)?;
                }
                end(&mut text);
            }
            TypeDefKind::Variant(variant) => {
                writeln!(text, "    export type {name} =")?;
                for case in &variant.cases {
                    text += &docs(&case.docs, "        ");
                    let val = match &case.ty {
                        Some(ty) => format!("; val: {}", self.value(ty)?),
                        None => String::new(),
                    };
                    writeln!(text, "        | {{ tag: \"{}\"{val} }}", case.name)?;
                }
                end(&mut text);
            }
            TypeDefKind::Resource => {
                writeln!(
                    text,
                    "    export class {name} {{\n        private constructor();"
                )?;
                for function in self.interface.functions.values() {
                    let how = match function.kind {
                        FunctionKind::Method(of) if of == id => "",
                        FunctionKind::Static(of) if of == id => "static ",
                        _ => continue,
                    };
                    text += &self.documented(function, "        ")?;
                    let called = camel(function.item_name());
                    writeln!(text, "        {how}{called}{};", self.signature(function)?)?;
                }
                text.push_str("    }\n");
            }
            _ => writeln!(text, "    export type {name} = {};", self.kind(definition)?)?,
        }
        Ok(text)
    }

    /// What a function's documentation says, with what it throws.
    fn documented(&self, function: &Function, indent: &str) -> Result<String> {
        let mut docs_of = function.docs.clone();
        if let Some((_, Some(error))) = self.outcome(function)? {
            let contents = docs_of.contents.get_or_insert_default();
            if !contents.is_empty() && !contents.ends_with('\n') {
                contents.push('\n');
            }
            write!(contents, "@throws {{{}}}", self.value(&error)?)?;
        }
        Ok(docs(&docs_of, indent))
    }

    /// What a function answers and, where it can fail, what it throws.
    fn outcome(&self, function: &Function) -> Result<Option<(Option<Type>, Option<Type>)>> {
        let Some(result) = function.result else {
            return Ok(None);
        };
        if let Type::Id(id) = result
            && let TypeDefKind::Result(result) = &self.definition(id)?.kind
        {
            return Ok(Some((result.ok, result.err)));
        }
        Ok(Some((Some(result), None)))
    }

    fn signature(&self, function: &Function) -> Result<String> {
        let method = matches!(function.kind, FunctionKind::Method(_));
        let mut parameters = Vec::new();
        for parameter in function.params.iter().skip(usize::from(method)) {
            parameters.push(format!(
                "{}: {}",
                camel(&parameter.name),
                self.value(&parameter.ty)?
            ));
        }
        let answer = match self.outcome(function)? {
            Some((Some(ty), _)) => self.value(&ty)?,
            _ => "void".to_owned(),
        };
        Ok(format!("({}): {answer}", parameters.join(", ")))
    }

    fn is_option(&self, ty: &Type) -> Result<bool> {
        let Type::Id(id) = ty else { return Ok(false) };
        Ok(matches!(self.definition(*id)?.kind, TypeDefKind::Option(_)))
    }

    fn value(&self, ty: &Type) -> Result<String> {
        Ok(match ty {
            Type::Bool => "boolean".to_owned(),
            Type::U8
            | Type::U16
            | Type::U32
            | Type::S8
            | Type::S16
            | Type::S32
            | Type::F32
            | Type::F64 => "number".to_owned(),
            Type::Char | Type::String => "string".to_owned(),
            Type::U64 | Type::S64 => bail!("no 64-bit integers: engines disagree on them"),
            Type::ErrorContext => {
                bail!("no error-context: it is a part of the component model's async")
            }
            Type::Id(id) => {
                let definition = self.definition(*id)?;
                match &definition.name {
                    Some(name) => pascal(name),
                    None => self.kind(definition)?,
                }
            }
        })
    }

    fn kind(&self, definition: &TypeDef) -> Result<String> {
        Ok(match &definition.kind {
            TypeDefKind::Type(ty) => self.value(ty)?,
            TypeDefKind::Option(ty) => format!("{} | null", self.value(ty)?),
            TypeDefKind::List(Type::U8) => "Uint8Array".to_owned(),
            TypeDefKind::List(ty) => format!("Array<{}>", self.value(ty)?),
            TypeDefKind::Tuple(tuple) => {
                let parts: Vec<String> = tuple
                    .types
                    .iter()
                    .map(|ty| self.value(ty))
                    .collect::<Result<_>>()?;
                format!("[{}]", parts.join(", "))
            }
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => {
                let resource = self.definition(*id)?;
                pascal(resource.name.as_deref().context("a resource with a name")?)
            }
            other => bail!(
                "no {} as a value: nothing in the contract was one yet",
                other.as_str()
            ),
        })
    }
}

/// Ends a union, whose last case stands on the last line.
fn end(text: &mut String) {
    text.truncate(text.trim_end().len());
    text.push_str(";\n");
}

/// A comment of these lines; empty where there are none.
fn docs(docs: &Docs, indent: &str) -> String {
    let Some(contents) = &docs.contents else {
        return String::new();
    };
    let lines: Vec<&str> = contents.trim_end().lines().collect();
    match lines.as_slice() {
        [] => String::new(),
        [line] => format!("{indent}/** {line} */\n"),
        lines => {
            let body: String = lines
                .iter()
                .map(|line| format!("{indent} * {line}\n"))
                .collect();
            format!("{indent}/**\n{body}{indent} */\n")
        }
    }
}

/// `kebab-case` as a type's name.
fn pascal(name: &str) -> String {
    name.split('-')
        .map(|word| {
            let mut letters = word.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        })
        .collect()
}

/// `kebab-case` as a value's name.
fn camel(name: &str) -> String {
    let pascal = pascal(name);
    let mut letters = pascal.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}
